"""Finds out which batch job this process runs in: one reader per batch system, all pure."""
