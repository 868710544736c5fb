"""From what a model wrote to a verdict."""

from dataclasses import replace

from fsctx.agent.engines.written import until_stop, verdict_of
from fsctx.protocol.verdicts import Status
from fsctx.templates.load import load_template


def test_a_text_without_a_label_is_an_error_only_where_there_are_labels() -> None:
    template = load_template("fever-raw")
    lacking = verdict_of(3, "Well.", template, input_tokens=5, output_tokens=2)
    free = verdict_of(3, "Well.", replace(template, labels=()), input_tokens=5, output_tokens=2)
    assert (lacking.status, lacking.verdict) == (Status.ERROR, None)
    assert (free.status, free.verdict, free.error, free.text) == (Status.OK, None, None, "Well.")


def test_a_text_ends_before_the_first_of_the_stop_strings() -> None:
    template = load_template("fever-raw")
    stopping = replace(template, generation=replace(template.generation, stop=("\n", ".")))
    assert until_stop("Yes. No\n", stopping) == "Yes"
    assert until_stop("Yes", stopping) == "Yes"
