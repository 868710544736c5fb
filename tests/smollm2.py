"""The small real model, for tests marked `model`."""

import functools
import os
from pathlib import Path

import pytest

GGUF = Path(os.environ.get("FSCTX_TEST_MODEL", Path(__file__).parent.parent / ".model/SmolLM2-135M-Instruct.Q4_1.gguf"))


def converted(base: Path) -> Path:
    """Return the model as a folder, converted once per test session into a folder under `base`; skip without it."""
    if not GGUF.is_file():
        pytest.skip(f"{GGUF} is not there: run `make setup`, or set FSCTX_TEST_MODEL")
    return _converted(base)


@functools.cache
def _converted(base: Path) -> Path:
    from fsctx.agent.engines.hf.convert import convert_gguf

    convert_gguf(GGUF, base / "smollm2")
    return base / "smollm2"
