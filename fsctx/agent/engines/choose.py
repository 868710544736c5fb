"""From `--engine` to an engine."""

import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec

from fsctx.agent.engines.base import UNSPLIT, Engine, Split
from fsctx.agent.engines.fake import FakeEngine, parse_options
from fsctx.agent.engines.vllm.installed import Installed, find_vllm
from fsctx.agent.engines.vllm.options import parse_vllm_options
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.errors import InputError, Misconfigured
from fsctx.protocol.manifest import Context

DTYPES = ("float32", "bfloat16", "float16")
_HF_ALONE = {"classifier": "a classifier", "lora": "a model with a LoRA adapter"}
"""Kinds of contexts that hf alone computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An engine, and why it is that one."""

    name: str
    options: str = ""
    why: str


def choose_engine(spec: str, *, device: str, kind: str, vllm: Installed | None) -> Choice:
    """Return what `spec` means for a kind of context (see `Context.kind`) on a device, given what is installed. Pure.

    On a CPU hf is the quicker one (docs/engines.md).
    """
    name, _, options = spec.partition(":")
    if spec != "auto":
        return Choice(name=name, options=options, why=f"--engine {spec} was asked for")
    if kind == "fake":
        return Choice(name="fake", why="the context is the fake model")
    if kind in _HF_ALONE:
        return Choice(name="hf", why=f"the context is {_HF_ALONE[kind]}, which is no work for vllm")
    if device.startswith("cpu"):
        return Choice(name="hf", why="the device is a CPU")
    if vllm is None or not vllm.is_for_gpus:
        return Choice(name="hf", why="no vllm for GPUs is installed")
    return Choice(name="vllm", why=f"the device is a GPU and vllm {vllm.version} is installed")


def choose_for(spec: str, *, device: str, kinds: Collection[str]) -> Choice:
    """Return what `spec` means here for a run with contexts of these kinds, in words where that is several engines."""
    found = [choose_engine(spec, device=device, kind=kind, vllm=find_vllm()) for kind in sorted(kinds)]
    names, reasons = (dict.fromkeys(told) for told in ([one.name for one in found], [one.why for one in found]))
    return Choice(name=" and ".join(names), why="; ".join(reasons))


def make_engine(
    spec: str,
    *,
    device: str,
    dtype: str | None = None,
    kind: str = "hf",
    split: Split = UNSPLIT,
    is_apart: bool = False,
) -> Engine:
    """Return the engine that `spec` names: `auto`, `hf`, `vllm[:option=value,…]` or `fake[:option=value,…]`.

    `is_apart`: each load is a process of its own, as it is with vllm anyway; the fake engine, which has nothing to
    import, pays no heed.
    Importing an engine's libraries takes some seconds and happens here.

    Raises:
        InputError: no such engine, option or dtype, or it can't split a model.
        Misconfigured: the engine's libraries are not installed, or it does not do this kind of context.
    """
    check_engine(spec, dtype=dtype, kind=kind, split=split)
    if refused := refusal(spec, kind, split=split):
        raise Misconfigured(refused)
    vllm = find_vllm()
    choice = choose_engine(spec, device=device, kind=kind, vllm=vllm)
    match choice.name:
        case "fake":
            return FakeEngine(parse_options(choice.options))
        case "vllm":
            return _vllm(vllm, choice.options, device=device, dtype=dtype, split=split)
        case _:
            return _hf(device, dtype, split, is_apart=is_apart)


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


def check_engine(spec: str, *, dtype: str | None = None, kind: str = "hf", split: Split = UNSPLIT) -> bool:
    """Return whether the engine computes on a device, without importing it: the fake one does not.

    Raises:
        InputError: no such engine, option or dtype, or it can't split a model.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}: use one of {', '.join(DTYPES)}")
    name, _, options = spec.partition(":")
    if spec == "auto" and kind == "fake":
        name = "fake"
    match name:
        case "fake" if split != UNSPLIT:
            raise InputError(f"{split}: the fake engine has no model to split: leave --tp and --pp out")
        case "fake":
            parse_options(options)
        case "vllm":
            parse_vllm_options(options)
        case "hf" | "auto" if options:
            raise InputError(f"--engine {spec}: {name} takes no options")
        case "hf" | "auto":
            pass
        case _:
            raise InputError(f"--engine {spec}: use auto, hf, vllm[:option=value,…] or fake[:option=value,…]")
    return name != "fake"


def refusal(spec: str, kind: str, *, split: Split = UNSPLIT) -> str | None:
    """Return why an engine keeps off a kind of contexts, whatever else it does here; None if it does not."""
    name = spec.partition(":")[0]
    if name == "vllm" and kind in _HF_ALONE:
        return f"it is {_HF_ALONE[kind]}, which --engine vllm does not do: use --engine hf or auto"
    if split != UNSPLIT and kind in _HF_ALONE:
        return f"it is {_HF_ALONE[kind]}, which can't be split: do without {split}"
    if name != "fake" and kind == "lora" and find_spec("peft") is None:
        return "merging a LoRA adapter needs the library peft: pip install 'fsctx[lora]'"
    return None


def _hf(device: str, dtype: str | None, split: Split, *, is_apart: bool) -> Engine:
    os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported: the only way to silence all its bars
    try:
        from fsctx.agent.engines.hf.engine import HfEngine
    except ImportError as error:
        raise _not_installed("hf", str(error)) from None
    return HfEngine(device=device, dtype=dtype, split=split, is_apart=is_apart)


def _vllm(found: Installed | None, options: str, *, device: str, dtype: str | None, split: Split) -> Engine:
    if found is None:
        raise _not_installed("vllm", "No module named 'vllm'")
    os.environ.setdefault("TQDM_DISABLE", "1")  # as above
    try:
        from fsctx.agent.engines.vllm.engine import VllmEngine
    except ImportError as error:
        raise _not_installed("vllm", str(error)) from None
    return VllmEngine(found, device=device, dtype=dtype, split=split, options=parse_vllm_options(options))


def _not_installed(name: str, what: str) -> Misconfigured:
    return Misconfigured(
        f"the {name} engine needs a library that is not installed ({what}): pip install 'fsctx[{name}]'"
    )
