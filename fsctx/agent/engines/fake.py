"""An engine without a model: deterministic verdicts at any speed, and failures on request.

It ships because it is how one tries a cluster without a GPU: `--engine fake:rows_per_s=50,load_s=20`.
"""

import hashlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from fsctx import __version__
from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.errors import EngineError, InputError, OutOfMemory, Unfit
from fsctx.protocol.verdicts import Status, Verdict

_BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeOptions:
    """What a fake engine does. Rows are named by their number in the run; -1 is none."""

    rows_per_s: float = 0.0
    """Speed; 0 is as fast as it goes."""
    load_s: float = 0.0
    memory_mb: int = 0
    """Memory that a loaded model really occupies."""
    accuracy: float = 0.8
    """Share of the claims whose verdict is `gold`."""
    accuracies: tuple[tuple[str, float], ...] = ()
    """The same of some templates: `accuracy:NAME=0.7`."""
    batch_tokens: int = _BATCH_TOKENS
    max_words: int = 0
    """Claims of more words are refused as too long; 0 is no limit."""
    oom_rows: int = 0
    """Batches of more rows do not fit; 0 is no limit."""
    fail_row: int = -1
    """This row fails every batch that it is in."""
    crash_row: int = -1
    """This row kills the process by SIGKILL."""
    hang_row: int = -1
    """This row takes a day."""
    broken: int = 0
    """1: every batch fails."""
    lost_after: int = 0
    """After so many batches the device is lost, until the model is loaded again; 0 is never."""
    unfit: int = 0
    """1: loading says that the device cannot hold the model."""


def parse_options(text: str) -> FakeOptions:
    """Read `name=value,name=value`.

    Raises:
        InputError: an unknown name, or a value that is not a number.
    """
    known = {field.name: field for field in fields(FakeOptions) if field.name != "accuracies"}
    values: dict[str, float] = {}
    accuracies: list[tuple[str, float]] = []
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        kind, _, template = name.partition(":")
        if kind == "accuracy" and template:
            accuracies.append((template, _number(known[kind], value)))
            continue
        if name not in known:
            raise InputError(f"the fake engine has no option {name!r}: use {', '.join(known)}")
        values[name] = _number(known[name], value)
    return FakeOptions(**values, accuracies=tuple(accuracies))  # type: ignore[arg-type]  # _number gives each field its own kind


def gold(claim: str, labels: Sequence[str]) -> str:
    """Return the label that the fake engine holds to be true of a claim."""
    return labels[_hash("gold", claim) % len(labels)]


class FakeEngine:
    """See `Engine`. `sleep` is what makes it slow."""

    def __init__(self, options: FakeOptions | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.name = f"fake {__version__}"
        self.convert: Callable[[Path, Path], None] | None = None
        self._options = options or FakeOptions()
        self._sleep = sleep

    def load(self, files: Path) -> "FakeModel":
        """See `Engine.load`. `files` is not looked at."""
        if self._options.unfit:
            raise Unfit("the fake engine was asked to find its device unfit (unfit=1): try another node")
        self._sleep(self._options.load_s)
        return FakeModel(self._options, self._sleep)


class FakeModel:
    """See `Model`."""

    device = "fake"
    dtype = "float32"

    def __init__(self, options: FakeOptions, sleep: Callable[[float], None]) -> None:
        self.batch_tokens = options.batch_tokens
        self._options = options
        self._sleep = sleep
        self._weights = bytearray(b"\x01") * (options.memory_mb << 20)  # touched, so really resident

    def bind(self, task: BoundTask) -> "FakeBound":
        """See `Model.bind`."""
        return FakeBound(task, self._options, self._sleep)

    def close(self) -> None:
        """See `Model.close`."""
        self._weights = bytearray()


class FakeBound:
    """See `Bound`."""

    def __init__(self, task: BoundTask, options: FakeOptions, sleep: Callable[[float], None]) -> None:
        self._task = task
        self._labels = task.template.label_names
        self._options = options
        self._sleep = sleep
        self._n_batches = 0

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`. A word is a token."""
        return [self._encode(row) for row in rows]

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        self._misbehave({row.row for row in batch}, len(batch))
        if self._options.rows_per_s:
            self._sleep(len(batch) / self._options.rows_per_s)
        return [self._verdict(row) for row in batch]

    def _encode(self, row: Row) -> Encoded:
        words, limit = len(row.claim.split()), self._options.max_words
        if not limit or words <= limit:
            return Encoded(row=row.row, n_tokens=max(1, words), payload=row.claim)
        error = f"{words} tokens are more than the model's window of {limit}"
        refused = Verdict(row=row.row, status=Status.TOO_LONG, error=error, input_tokens=words)
        return Encoded(row=row.row, n_tokens=words, refused=refused)

    def _misbehave(self, rows: set[int], n_rows: int) -> None:
        options = self._options
        if options.crash_row in rows:
            os.kill(os.getpid(), signal.SIGKILL)
        if options.hang_row in rows:
            self._sleep(86_400.0)
        self._n_batches += 1
        if options.lost_after and self._n_batches > options.lost_after:
            raise Unfit("the fake device is lost, as it was asked to be")
        if options.broken:
            raise EngineError("the fake engine was asked to fail on every row")
        if options.oom_rows and n_rows > options.oom_rows:
            raise OutOfMemory(f"a batch of {n_rows} rows does not fit {options.oom_rows}")
        if options.fail_row in rows:
            raise EngineError(f"the fake engine was asked to fail on row {options.fail_row}")

    def _verdict(self, row: Encoded) -> Verdict:
        template, labels, claim = self._task.template, self._labels, str(row.payload)
        if not template.labels:
            text = f"fake answer {_hash('text', template.name, claim) % 1000}"
            return Verdict(row=row.row, text=text, input_tokens=row.n_tokens, output_tokens=1)
        accuracy = dict(self._options.accuracies).get(template.name, self._options.accuracy)
        chosen = _choose(claim, template.name, labels, accuracy)
        if self._task.method == "generate":
            words = template.labels[labels.index(chosen)].words.strip()
            return Verdict(row=row.row, verdict=chosen, text=words, input_tokens=row.n_tokens, output_tokens=1)
        scores = _scores(claim, template.name, labels, chosen)
        return Verdict(row=row.row, verdict=chosen, scores=scores, input_tokens=row.n_tokens)


def _number(field: "Field[Any]", value: str) -> float:
    default: Any = field.default
    kind = int if isinstance(default, int) else float
    try:
        number = kind(value)
    except ValueError:
        raise InputError(f"the fake engine's option {field.name}={value!r} is not {kind.__name__}") from None
    if not min(0, default) <= number < math.inf:
        raise InputError(f"the fake engine's option {field.name}={value} is out of range: pass 0 or more")
    return number


def _choose(claim: str, template: str, labels: Sequence[str], accuracy: float) -> str:
    true = gold(claim, labels)
    wrong = [label for label in labels if label != true]
    is_right = not wrong or _hash("right", template, claim) % 10_000 < accuracy * 10_000
    return true if is_right else wrong[_hash("wrong", template, claim) % len(wrong)]


def _scores(claim: str, template: str, labels: Sequence[str], chosen: str) -> tuple[float, ...]:
    """Return log-probabilities of which the chosen label's is the highest; the probabilities sum to one."""
    weights = [1 + _hash("score", template, claim, label) % 1000 for label in labels]
    weights = [weight + (1000 if label == chosen else 0) for weight, label in zip(weights, labels, strict=True)]
    total = sum(weights)
    return tuple(math.log(weight / total) for weight in weights)


def _hash(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8])
