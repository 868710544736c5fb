"""High-throughput LLM inference on opportunistic clusters, coordinated by a shared filesystem alone."""

__version__ = "0.1.0"
