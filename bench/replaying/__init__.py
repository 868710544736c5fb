"""The parts of bench/paper.py, one module each."""
