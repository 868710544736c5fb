"""The page about a run: what its verdicts say and what its fleet did, in one HTML file that needs nothing else."""
