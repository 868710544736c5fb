"""Other engines on the same prompts, each in its own interpreter (`environment`), by a script of its own (`*_side`)."""
