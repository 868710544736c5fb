"""Runs an application: executes the file that was planned, lets it load its context once, and gives it batches."""

import gc
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fsctx.agent.device import DeviceInfo
from fsctx.agent.engines.app.answers import verdict_of
from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.errors import EngineError, Misconfigured, OutOfMemory, Unfit
from fsctx.protocol.apps import LOAD, App
from fsctx.protocol.verdicts import Status, Verdict


class AppEngine:
    """See `Engine`. `code` is the file's content, compared with the plan; `where` is its path, for tracebacks."""

    def __init__(self, app: App, code: bytes, *, where: str, device: DeviceInfo, has_model: bool) -> None:
        self.name = f"app {app.sha256[:12]}"
        self.convert: Callable[[Path, Path], None] | None = None
        self._app = app
        self._code = code
        self._where = where
        self._device = device
        self._has_model = has_model
        self._module: ModuleType | None = None

    def load(self, files: Path) -> "AppModel":
        """See `Engine.load`. The file is executed the first time."""
        if self._module is None:
            self._module = self._execute()
        load = getattr(self._module, LOAD, None)
        context = None if load is None else self._call(load, files)
        return AppModel(self._app, getattr(self._module, self._app.function), context, device=self._device.name)

    def _execute(self) -> ModuleType:
        """Execute the file as a module of its own.

        Raises:
            Misconfigured: it raised.
        """
        module = ModuleType(f"fsctx_app_{self._app.sha256[:12]}")
        module.__file__ = self._where
        sys.modules[module.__name__] = module  # where dataclasses and pickle look for what it defines
        try:
            exec(compile(self._code, self._where, "exec"), module.__dict__)  # noqa: S102 - as planned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code raises what it likes
            raise Misconfigured(f"{self._app.file} raised while it was imported: {self._said(error)}") from None
        return module

    def _call(self, load: Callable[..., Any], files: Path) -> Any:
        given = {"model": files if self._has_model else None, "device": self._device.spec}
        wanted = {name: value for name, value in given.items() if name in inspect.signature(load).parameters}
        try:
            return load(**wanted)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
            seen = f"{LOAD}() of {self._app.file} raised {self._said(error)}"
            if _is_out_of_memory(error) or _is_device_lost(error):
                raise Unfit(f"{seen}: try another node") from None
            raise Misconfigured(seen) from None

    def _said(self, error: BaseException) -> str:
        """Return an error in one line, with the line of the file where it came from."""
        trace, line = error.__traceback__, getattr(error, "lineno", None)
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == self._where else line
            trace = trace.tb_next
        return _one_line(error) + ("" if line is None else f" (line {line})")


class AppModel:
    """See `Model`. A token is a row: the application decides what it does with a batch."""

    dtype = "its own"

    def __init__(self, app: App, function: Callable[..., Any], context: Any, *, device: str) -> None:
        self.device = device
        self.batch_tokens = app.batch_rows
        self._app = app
        self._function = function
        self._context = context

    def bind(self, task: BoundTask) -> "AppBound":
        """See `Model.bind`. The task is the application's one."""
        return AppBound(self._app, self._function, self._context)

    def close(self) -> None:
        """See `Model.close`. Frees what nothing but the application's context held."""
        self._context = None
        gc.collect()


class AppBound:
    """See `Bound`."""

    def __init__(self, app: App, function: Callable[..., Any], context: Any) -> None:
        self._app = app
        self._function = function
        self._context = context

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return [Encoded(row=row.row, n_tokens=1, payload={**row.columns, "claim": row.claim}) for row in rows]

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`. Of a batch with a wrong number of answers the rows are asked alone."""
        answers = self._ask([dict(row.payload) for row in batch])
        if isinstance(answers, list) and len(answers) == len(batch):
            return [verdict_of(answer, row=row.row, app=self._app) for answer, row in zip(answers, batch, strict=True)]
        if isinstance(answers, list) and len(batch) > 1:
            raise EngineError(f"{self._app.function} gave {len(answers)} answers for {len(batch)} rows")
        seen = f"{len(answers)} answers for 1 row" if isinstance(answers, list) else type(answers).__name__
        error = f"{self._app.function} gave {seen}, and must return one answer for each row"
        return [Verdict(row=row.row, status=Status.ERROR, error=error) for row in batch]

    def _ask(self, rows: list[dict[str, Any]]) -> Any:
        """Return the answers in a list, or what the function gave instead: one text, one dict, nothing."""
        try:
            answers = self._function(self._context, rows)
            is_one = isinstance(answers, str | bytes | dict) or not hasattr(answers, "__iter__")
            return answers if is_one else list(answers)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code raises what it likes
            if _is_device_lost(error):
                raise Unfit(f"the device failed ({_one_line(error)}): try another node") from None
            kind = OutOfMemory if _is_out_of_memory(error) else EngineError
            raise kind(f"{self._app.function} raised {_one_line(error)}") from None


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, by torch's and Python's name of that: torch is not imported to ask."""
    return type(error).__name__ in ("OutOfMemoryError", "MemoryError")


def _is_device_lost(error: BaseException) -> bool:
    return type(error).__name__ == "AcceleratorError"


def _one_line(error: BaseException) -> str:
    """Return what an error says in its first line, in characters that a file can keep."""
    lines = str(error).encode(errors="backslashreplace").decode().strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
