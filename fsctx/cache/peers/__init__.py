"""Chunks from the caches of other nodes: what serves this node's, and what asks the others'."""
