"""From a run and `fsctx agent`'s options to what computes: engines of models, or the run's application."""

from collections.abc import Callable

from fsctx.agent.device import DeviceInfo
from fsctx.agent.engines.app.engine import AppEngine
from fsctx.agent.engines.base import UNSPLIT, Engine
from fsctx.agent.engines.choose import Choice, check_engine, choose_for, engines, refusal
from fsctx.agent.gpus.fit import check_holds
from fsctx.agent.options import AgentOptions
from fsctx.agent.remembering import remembering
from fsctx.agent.runfiles import RunFiles
from fsctx.errors import InputError, Misconfigured
from fsctx.protocol import names
from fsctx.protocol.apps import read_code
from fsctx.protocol.manifest import Context


def uses_device(run: RunFiles, options: AgentOptions) -> bool:
    """Return whether a run's engines compute on a device, without importing them.

    Raises:
        InputError: an option that they don't have.
        Misconfigured: the engine keeps off every context of the run.
    """
    if run.manifest.app is not None:
        _check_app_options(options)
        return True
    if run.kinds == {"fake"} and options.engine.partition(":")[0] in ("hf", "vllm"):
        raise InputError(
            f"--engine {options.engine}: {run.store.root} was planned with the fake model, which has no files: leave "
            "--engine out, or plan with a model"
        )
    contexts = run.contexts.values()
    uses = [check_engine(options.engine, dtype=options.dtype, kind=kind, split=options.split) for kind in run.kinds]
    refused = [(context.name, refusal(options.engine, context.kind, split=options.split)) for context in contexts]
    if all(why for _, why in refused):
        raise Misconfigured("; ".join(f"{name}: {why}" for name, why in refused))
    return any(uses)


def choose_of_run(run: RunFiles, options: AgentOptions, device: DeviceInfo) -> Choice:
    """Return which engine a run takes here, and why."""
    if run.manifest.app is not None:
        return Choice(name="app", why="the run was planned with an application")
    return choose_for(options.engine, device=device.spec, kinds=run.kinds)


def check_context(options: AgentOptions, device: DeviceInfo, context: Context) -> None:
    """Refuse a context by its kind and size, before any of it is leased or fetched.

    Raises:
        Misconfigured: the engine keeps off it.
        Unfit: the devices can't hold it.
    """
    if refused := refusal(options.engine, context.kind, split=options.split):
        raise Misconfigured(refused)
    check_holds(device, context, n_devices=options.split.n_ranks)


def engines_of_run(run: RunFiles, options: AgentOptions, device: DeviceInfo) -> Callable[[Context], Engine]:
    """Return what gives the engine for each context.

    Raises:
        Damaged: the application's file is not the one that was planned.
    """
    app = run.manifest.app
    if app is None:
        return remembering(engines(options, device=device.spec), options.cache)
    where = f"{run.store.root}/{names.app(app.sha256)}"
    has_model = any(context.kind != "none" for context in run.contexts.values())
    engine = AppEngine(app, read_code(run.store, app), where=where, device=device, has_model=has_model)
    return lambda _: engine


def _check_app_options(options: AgentOptions) -> None:
    asked = {
        f"--engine {options.engine}": options.engine != "auto",
        f"--dtype {options.dtype}": options.dtype is not None,
        str(options.split): options.split != UNSPLIT,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise InputError(f"{option}: this run has an application, which is the engine itself: leave it out")
