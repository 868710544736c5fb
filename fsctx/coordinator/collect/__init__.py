"""Collecting a run's verdicts: the exactly-once proof, the rows in input order, statistics and a report."""
