"""How much memory vLLM may take of what is free. Pure."""

MOST = 0.92
"""vLLM's own default: of an empty device's memory it leaves so much to others."""

SPARE_BYTES = 1 << 30
"""Left of what is free: a previous process' memory, and the driver's for each new one, come and go."""

_KV_LEAST, _KV_MOST = 1 << 30, 16 << 30


def memory_share(*, free_bytes: int, total_bytes: int) -> float:
    """Return the share of a GPU's memory to ask for: vLLM refuses to start where less than that is free."""
    share = (free_bytes - SPARE_BYTES) / total_bytes
    return max(0.0, min(MOST, int(share * 1000) / 1000))


def kv_bytes(available_bytes: int) -> int:
    """Return the memory for keys and values on a CPU: a tenth of what is available, as several agents share a node."""
    return max(_KV_LEAST, min(_KV_MOST, available_bytes // 10))
