"""From `--engine` to an engine."""

import functools
import os
from collections.abc import Callable

from fsctx.agent.engines.base import UNSPLIT, Engine, Split
from fsctx.agent.engines.fake import FakeEngine, parse_options
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.errors import InputError, Misconfigured
from fsctx.protocol.manifest import Context

DTYPES = ("float32", "bfloat16", "float16")


def make_engine(
    spec: str,
    *,
    device: str,
    dtype: str | None = None,
    kind: str = "hf",
    split: Split = UNSPLIT,
    is_apart: bool = False,
) -> Engine:
    """Return the engine that `spec` names: `auto`, `hf` or `fake[:option=value,…]`.

    `kind` is the context's (see `Context.kind`): `auto` is the fake engine for `fake`, else `hf`. `is_apart`: each
    load is a process of its own; the fake engine, which has nothing to import, pays no heed.
    Importing an engine's libraries takes some seconds and happens here.

    Raises:
        InputError: no such engine, option or dtype, or it can't split a model.
        Misconfigured: the engine's libraries are not installed.
    """
    name, options = check_engine(spec, dtype=dtype, kind=kind, split=split)
    return FakeEngine(parse_options(options)) if name == "fake" else _hf(device, dtype, split, is_apart=is_apart)


def engines(options: AgentOptions, *, device: str) -> Callable[[Context], Engine]:
    """Return what makes each kind of context's engine, once, when it is needed.

    With less than the full context, no process of an engine outlives its unit.
    """
    is_apart = options.context != ContextMode.FULL

    @functools.cache
    def of_kind(kind: str) -> Engine:
        return make_engine(
            options.engine, device=device, dtype=options.dtype, kind=kind, split=options.split, is_apart=is_apart
        )

    return lambda context: of_kind(context.kind)


def check_engine(spec: str, *, dtype: str | None = None, kind: str = "hf", split: Split = UNSPLIT) -> tuple[str, str]:
    """Return the engine's own name and its options, without importing it.

    Raises:
        InputError: no such engine, option or dtype, or it can't split a model.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}: use one of {', '.join(DTYPES)}")
    name, _, options = spec.partition(":")
    if name == "auto" and not options:
        name = "fake" if kind == "fake" else "hf"
    match name:
        case "fake" if split != UNSPLIT:
            raise InputError(f"{split}: the fake engine has no model to split: leave --tp and --pp out")
        case "fake":
            parse_options(options)
        case "hf" if options:
            raise InputError(f"--engine {spec}: the hf engine takes no options")
        case "hf":
            pass
        case "vllm":
            raise InputError("--engine vllm is not in this version: use hf")
        case _:
            raise InputError(f"--engine {spec}: use auto, hf or fake[:option=value,…]")
    return name, options


def _hf(device: str, dtype: str | None, split: Split, *, is_apart: bool) -> Engine:
    os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported: the only way to silence all its bars
    try:
        from fsctx.agent.engines.hf.engine import HfEngine
    except ImportError as error:
        raise Misconfigured(
            f"the hf engine needs a library that is not installed ({error}): pip install 'fsctx[hf]'"
        ) from None
    return HfEngine(device=device, dtype=dtype, split=split, is_apart=is_apart)
