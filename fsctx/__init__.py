"""High-throughput LLM inference on opportunistic clusters, coordinated by a shared filesystem alone.

    run = fsctx.plan("claims.jsonl", run="my-run", model="MODEL")
    run.submit("local", n=2)
    run.wait()
    table = run.collect()

See docs/python.md. `__all__` is the public surface; importing it loads nothing heavy.
"""

from fsctx.errors import Damaged, FsctxError, InputError, NoSpace, NotComplete, StoreError

TYPE_CHECKING = False  # as type checkers take it; typing itself would be imported before Ctrl-C is looked after
if TYPE_CHECKING:
    from typing import Any

    from fsctx.api import Run, plan

__version__ = "0.1.0"

__all__ = [
    "Damaged",
    "FsctxError",
    "InputError",
    "NoSpace",
    "NotComplete",
    "Run",
    "StoreError",
    "__version__",
    "plan",
]


def __getattr__(name: str) -> "Any":
    """Import what is asked for, when it is asked for."""
    if name not in ("Run", "plan"):
        raise AttributeError(f"module 'fsctx' has no attribute {name!r}")
    from fsctx import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
