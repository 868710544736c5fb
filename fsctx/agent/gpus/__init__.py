"""Which GPU an agent works on: from what was assigned to the index that engines understand."""
