"""What `bench/gpu.py` measures: parts that share a budget of time and write into one table."""
