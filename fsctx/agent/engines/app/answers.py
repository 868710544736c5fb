"""What an application's function gives for a row, checked and made a verdict. Pure."""

from collections.abc import Mapping
from typing import Any

from fsctx.protocol.apps import App
from fsctx.protocol.outputs import TEXT, fold
from fsctx.protocol.verdicts import Status, Verdict

_KNOWN = ("verdict", "scores", TEXT, "error")


def verdict_of(answer: Any, *, row: int, app: App) -> Verdict:
    """Return a row's verdict: a text, or a mapping of `verdict`, `scores`, `text`, `error` and declared columns.

    An answer that is none of that costs its row alone, which says why.
    """
    try:
        return _verdict({TEXT: answer} if isinstance(answer, str) else answer, row, app)
    except ValueError as error:
        return Verdict(row=row, status=Status.ERROR, error=f"{app.function} gave a wrong answer: {error}")


def _verdict(answer: Any, row: int, app: App) -> Verdict:
    if not isinstance(answer, Mapping):
        raise ValueError(f"a row's answer is {type(answer).__name__}, and must be a dict or a str")
    unknown = [name for name in answer if name not in _KNOWN and name not in app.outputs]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no column: declare it in OUTPUT, or use {', '.join(_KNOWN)}")
    verdict, text, error = (_text(answer, name) for name in ("verdict", TEXT, "error"))
    if error is not None:
        return Verdict(row=row, status=Status.ERROR, error=error)
    if verdict is not None and app.labels and verdict not in app.labels:
        raise ValueError(f"the verdict {verdict!r} is not among LABELS ({', '.join(app.labels)})")
    return Verdict(
        row=row,
        verdict=verdict,
        scores=_scores(answer.get("scores"), app),
        text=fold(text, answer, app.outputs) if app.outputs else text,
    )


def _text(answer: Mapping[str, Any], name: str) -> str | None:
    value = answer.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name!r} is {type(value).__name__}, and must be a str")
    if value is not None and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"{name!r} holds half a character (a surrogate), which no file can keep")
    return value


def _scores(given: Any, app: App) -> tuple[float, ...] | None:
    """Return the labels' scores in order."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or sorted(given) != sorted(app.labels):
        raise ValueError("'scores' must be a dict with one number for each of LABELS")
    try:
        return tuple(float(given[label]) for label in app.labels)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("'scores' must be a dict with one number for each of LABELS") from None
