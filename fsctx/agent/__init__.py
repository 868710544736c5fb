"""What runs in a pilot: leases units, keeps the context resident, publishes verdicts. Never imports the coordinator."""
