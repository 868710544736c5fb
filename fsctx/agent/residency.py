"""Keeps a context resident on the device, or, to measure what that is worth, does not."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fsctx.agent.engines.base import Bound, BoundTask, Engine, Model
from fsctx.cache import Fetched
from fsctx.errors import EngineError, Misconfigured
from fsctx.protocol.manifest import Context, Task
from fsctx.templates.model import Template


class ContextMode(StrEnum):
    """The three versions of the paper (arXiv 2510.14024)."""

    FULL = "full"
    """Files on the node, model resident on the device from unit to unit."""
    PARTIAL = "partial"
    """Files on the node; for each unit a new process, which loads the model."""
    AGNOSTIC = "agnostic"
    """The same, and the files are read from the shared filesystem as they are there: a GGUF file is dequantised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What `Residency.ensure` had to do, in seconds."""

    fetched: Fetched | None = None
    load_s: float = 0.0
    bind_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Residency:
    """The contexts of a run on one device. Only the main thread changes it."""

    tasks: Sequence[Task]
    contexts: dict[str, Context]
    templates: dict[str, Template]
    mode: ContextMode
    engine_for: Callable[[Context], Engine]
    fetch: Callable[[Context, Engine], Fetched]
    """Brings the files to the node, or says where they are."""
    clock: Callable[[], float]
    mend: Callable[[Context], bool] = lambda _: False
    """Compares what this node has of a context, and tells whether it was damaged and is to be fetched again."""
    on_node: Callable[[], Collection[str]] = tuple
    """Returns the contexts whose files are on this node."""
    check: Callable[[Context], None] = lambda _: None
    """Raises `Unfit` or `Misconfigured` for a context that can't be done here, by its size or kind."""
    engine: str = ""
    """Name of the engine that runs the resident model."""
    model: Model | None = None
    context: str | None = None
    _bound: dict[int, Bound] = field(default_factory=dict)

    def bound(self, task: int) -> Bound | None:
        """Return the resident model bound to a task, if it is."""
        return self._bound.get(task)

    def ensure(self, task: int, on_step: Callable[[str], None]) -> tuple[Bound, Changed]:
        """Make a task's context resident and bind it; what stands already is kept.

        `on_step` is told `fetching`, `loading` before each. On errors nothing is resident.
        """
        bound = self._bound.get(task)
        if bound is not None:
            return bound, Changed()
        context = self.contexts[self.tasks[task].context]
        fetched, load_s = None, 0.0
        if self.context != context.digest:
            fetched, load_s = self._load(context, on_step)
        began_s = self.clock()
        assert self.model is not None
        bound = self.model.bind(
            BoundTask(template=self.templates[self.tasks[task].template], method=self.tasks[task].method)
        )
        self._bound[task] = bound
        return bound, Changed(fetched=fetched, load_s=load_s, bind_s=self.clock() - began_s)

    def after_visit(self) -> None:
        """Drop the model again unless the mode keeps it."""
        if self.mode != ContextMode.FULL:
            self.drop()

    def drop(self) -> None:
        """Free the device."""
        model, self.model, self.context = self.model, None, None
        self._bound.clear()
        if model is not None:
            model.close()

    def _load(self, context: Context, on_step: Callable[[str], None]) -> tuple[Fetched, float]:
        """Fetch and load; once more where it was the files on this node that could not be loaded."""
        self.drop()
        try:
            return self._load_once(context, on_step)
        except (EngineError, Misconfigured):
            if self.mode == ContextMode.AGNOSTIC or not self.mend(context):
                raise
        return self._load_once(context, on_step)

    def _load_once(self, context: Context, on_step: Callable[[str], None]) -> tuple[Fetched, float]:
        on_step("fetching")
        engine = self.engine_for(context)
        fetched = self.fetch(context, engine)
        on_step("loading")
        began_s = self.clock()
        self.model = engine.load(fetched.path)
        self.engine, self.context = engine.name, context.digest
        return fetched, self.clock() - began_s
