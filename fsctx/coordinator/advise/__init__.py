"""How to spread a model over a node's devices: every way that is possible, what it costs, and which to take."""
