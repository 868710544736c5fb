"""What torch raises, as the errors that batching understands: the one place that maps them."""

from collections.abc import Callable
from typing import TypeVar

import torch

from fsctx.errors import EngineError, FsctxError, OutOfMemory, Unfit

Result = TypeVar("Result")


def guarded(call: Callable[[], Result]) -> Result:
    """Make a call that computes on the device.

    Raises:
        OutOfMemory: it did not fit; what it held is free again.
        Unfit: the device is lost to this process.
        EngineError: anything else.
    """
    try:
        return call()
    except FsctxError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = first_line(error)
    except device_errors() as error:
        raise Unfit(f"the device failed ({first_line(error)}): try another node") from None
    except Exception as error:
        raise EngineError(f"{type(error).__name__}: {first_line(error)}") from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # here, where the frames that hold the tensors are gone
    raise OutOfMemory(f"the batch does not fit the device ({reason})")


def device_errors() -> tuple[type[Exception], ...]:
    """Return what torch raises when a device is lost; before 2.8 it has no type of its own for that."""
    found = getattr(torch, "AcceleratorError", None)
    return () if found is None else (found,)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, else its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
