"""Which rows form a batch, and what happens when a batch fails. Knows no engine and no model."""

from collections.abc import Callable, Iterator, Sequence

from fsctx.agent.engines.base import Bound, Encoded
from fsctx.errors import EngineError, Misconfigured, OutOfMemory, Unfit
from fsctx.protocol.verdicts import Status, Verdict

EVIDENCE = 16
"""So many rows must fail, and none succeed, before the node is blamed rather than the rows."""

_NOT_OF_THE_ROW = (Unfit, Misconfigured)
"""Errors that say nothing about the rows: they go to the caller."""


class Budget:
    """How many padded tokens a batch may have. It only ever shrinks: what did not fit once is not tried again."""

    def __init__(self, tokens: int) -> None:
        self.tokens = max(1, tokens)

    def shrink(self, tokens: int) -> None:
        """Lower the budget to `tokens`, if that is lower."""
        self.tokens = max(1, min(self.tokens, tokens))


class Health:
    """Whether an engine ever computed a row here. One that only fails is no judge of the rows."""

    def __init__(self) -> None:
        self.n_failed = 0
        self.has_succeeded = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether rows failed and none succeeded."""
        return self.n_failed > 0 and not self.has_succeeded

    def note(self, outcome: "list[Verdict] | Exception") -> None:
        """Note what came of a batch, or of a row alone.

        Raises:
            Unfit: so many rows failed and none succeeded that the node is to blame.
        """
        if not isinstance(outcome, Exception):
            self.has_succeeded = True
            return
        self.n_failed += 1
        if self.is_in_doubt and self.n_failed >= EVIDENCE:
            seen = f"each of {self.n_failed} rows failed here and none succeeded ({_reason(outcome)})"
            raise Unfit(f"{seen}: try another node")


def batches(encoded: Sequence[Encoded], budget_tokens: int) -> Iterator[list[Encoded]]:
    """Cut rows into batches, longest rows first, so that the tokens padded to the longest stay within the budget.

    A batch has at least one row. Refused rows must be left out before.
    """
    rest = _by_length(encoded)
    while rest:
        batch, rest = _cut(rest, budget_tokens)
        yield batch


def infer_all(
    bound: Bound,
    encoded: Sequence[Encoded],
    *,
    budget: Budget,
    should_stop: Callable[[], bool],
    health: Health | None = None,
) -> Iterator[list[Verdict]]:
    """Compute the verdicts of rows, batch by batch; refused rows come out first.

    A batch that runs out of memory is cut again under half its cost. One that fails otherwise is
    halved, down to the row, which ends with status `error`. Asks `should_stop` before each
    batch; rows not reached by then have no verdict.

    Raises:
        Unfit: the device is lost, or `health` says so.
        Misconfigured: the model can never do this task.
    """
    refused = [row.refused for row in encoded if row.refused is not None]
    if refused:
        yield refused
    waiting = [_by_length([row for row in encoded if row.refused is None])]
    while waiting and not should_stop():
        batch, rest = _cut(waiting.pop(), budget.tokens)
        waiting += [rest] if rest else []
        outcome = _attempt(bound, batch) if batch else []
        if health is not None and (len(batch) == 1 or not isinstance(outcome, Exception)):
            health.note(outcome)
        if not isinstance(outcome, Exception):
            yield outcome
        elif len(batch) == 1:
            yield [_failed(batch[0], outcome)]
        elif isinstance(outcome, OutOfMemory):
            budget.shrink(_cost(batch) // 2)
            waiting.append(batch)
        else:
            half = len(batch) // 2
            waiting += [batch[half:], batch[:half]]


def _by_length(encoded: Sequence[Encoded]) -> list[Encoded]:
    return sorted(encoded, key=lambda row: row.n_tokens, reverse=True)


def _cut(rows: list[Encoded], budget_tokens: int) -> tuple[list[Encoded], list[Encoded]]:
    """Return the first batch of rows that come longest first, and the rest."""
    if not rows:
        return [], []
    n = max(1, budget_tokens // max(1, rows[0].n_tokens))
    return rows[:n], rows[n:]


def _cost(batch: list[Encoded]) -> int:
    return len(batch) * max(1, batch[0].n_tokens)


def _attempt(bound: Bound, batch: list[Encoded]) -> list[Verdict] | Exception:
    try:
        verdicts = bound.infer(batch)
    except _NOT_OF_THE_ROW:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is recorded on the rows that cause it
        return error
    if [verdict.row for verdict in verdicts] != [row.row for row in batch]:
        return EngineError(f"the engine gave {len(verdicts)} verdicts for {len(batch)} rows, or of other rows")
    return verdicts


def _failed(row: Encoded, error: Exception) -> Verdict:
    return Verdict(row=row.row, status=Status.ERROR, error=_reason(error))


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if isinstance(error, EngineError) else f"{type(error).__name__}: {lines[0]}"
