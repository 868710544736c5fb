"""The engine on vLLM, which computes in a process of its own: `engine` is the agent's side, `resident` the other."""
