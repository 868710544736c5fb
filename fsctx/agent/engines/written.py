"""From what a model wrote to a verdict, in any engine."""

from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.model import Template
from fsctx.templates.read_verdict import read_verdict


def until_stop(text: str, template: Template) -> str:
    """Return a text up to the first of the template's stop strings."""
    stop = template.generation.stop
    return text[: min((text.find(part) for part in stop if part in text), default=len(text))]


def verdict_of(
    row: int, text: str, template: Template, *, label: str | None = None, input_tokens: int, output_tokens: int
) -> Verdict:
    """Return what a text says: `label` if that is known, else what can be read; without labels the text is all."""
    verdict = read_verdict(text, template) if label is None else label
    is_lacking = verdict is None and bool(template.labels)
    return Verdict(
        row=row,
        verdict=verdict,
        text=text,
        status=Status.ERROR if is_lacking else Status.OK,
        error="no label could be read from the text" if is_lacking else None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
