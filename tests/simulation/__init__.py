"""Deterministic simulation: the real protocol code on a simulated filesystem, clock and threads.

One seed is one history. No thread and no sleep is real. See `history.run`, and `python -m simulation --help`.
"""
