"""The parts of bench/coordination.py, one module each."""
