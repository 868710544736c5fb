"""Engines that remember which batches did not fit: wrappers around an engine, its models and what they are bound to."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fsctx.agent.engines.base import Bound, BoundTask, Encoded, Engine, Model, Row
from fsctx.cache.batches import BatchNotes
from fsctx.errors import OutOfMemory
from fsctx.protocol.manifest import Context
from fsctx.protocol.verdicts import Verdict


def remembering(engine_for: Callable[[Context], Engine], cache: Path) -> Callable[[Context], Engine]:
    """Return the same engines, whose models begin with batches that were not too large last time on this node."""
    return lambda context: _Engine(engine_for(context), BatchNotes(cache))


class _Engine:
    """See `Engine`."""

    def __init__(self, engine: Engine, notes: BatchNotes) -> None:
        self.name = engine.name
        self.convert = engine.convert
        self._engine = engine
        self._notes = notes

    def load(self, files: Path) -> Model:
        """See `Engine.load`."""
        model = self._engine.load(files)
        return _Model(model, self._notes, key=(files.name, self.name, model.device, model.dtype))


class _Model:
    """See `Model`."""

    def __init__(self, model: Model, notes: BatchNotes, *, key: Sequence[str]) -> None:
        self.device = model.device
        self.dtype = model.dtype
        noted = notes.read(key)
        self.batch_tokens = model.batch_tokens if noted is None else min(noted, model.batch_tokens)
        self._model = model
        self._note: Callable[[int], None] = lambda tokens: notes.write(key, tokens)

    def bind(self, task: BoundTask) -> Bound:
        """See `Model.bind`."""
        return _Bound(self._model.bind(task), self._note)

    def close(self) -> None:
        """See `Model.close`."""
        self._model.close()


class _Bound:
    """See `Bound`."""

    def __init__(self, bound: Bound, note: Callable[[int], None]) -> None:
        self.encode: Callable[[Sequence[Row]], list[Encoded]] = bound.encode
        self._bound = bound
        self._note = note

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        try:
            return self._bound.infer(batch)
        except OutOfMemory:
            self._note(max(1, len(batch) * max(row.n_tokens for row in batch) // 2))
            raise
