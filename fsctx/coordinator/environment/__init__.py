"""The software environment: packed into one archive, and made known to a run."""
