"""What the demo says at its end: the proof, where the time went, what to try next. Pure."""

import shlex
from collections.abc import Iterator

from fsctx.coordinator.collect.collect import Summary
from fsctx.coordinator.progress import Status, goodput
from fsctx.coordinator.status_text import duration
from fsctx.demo.folder import Try

FAKE = "fake"


def proof_lines(summary: Summary, *, n_claims: int, killed: str | None, n_taken_over: int) -> Iterator[str]:
    """Say that every claim is there once, and what became of the killed agent's units."""
    yield "The proof"
    yield (
        f"  {n_claims:,} claims were planned, {summary.rows:,} verdicts are in the file: each claim once, "
        f"{summary.missing:,} missing, {summary.duplicates:,} twice."
    )
    if killed is None:
        yield "  No agent was killed: the run was over before it was time."
        return
    rows = {maker.agent: maker.rows for maker in summary.makers}
    yield (
        f"  {killed} was killed in the middle: {rows.get(killed, 0):,} verdicts that it had published or saved count. "
        f"Units taken over from it: {n_taken_over:,}."
    )
    yield "  Rows by agent: " + ", ".join(f"{agent} {n:,}" for agent, n in sorted(rows.items())) + "."


def time_lines(status: Status, *, n_rows: int) -> Iterator[str]:
    """Say where the agents' time went, as their last heartbeats tell."""
    sums = goodput(status.ledger)
    seconds = {kind: spent for kind, spent in sums["seconds"].items() if spent >= 0.5}
    yield "Where the agents' time went"
    yield "  " + ", ".join(f"{kind} {duration(spent)}" for kind, spent in seconds.items()) + "."
    n_loads = sums["loads"]
    if n_loads:
        yield (
            f"  {_count(n_loads, 'load')} of the model served {n_rows:,} claims ({n_rows / n_loads:,.0f} a load); "
            f"{sums['rows_adopted']:,} rows were adopted from the dead agent, {sums['rows_lost']:,} computed in vain."
        )


def next_lines(done: Try, *, model: str, fsctx: str) -> Iterator[str]:
    """Say what to try next; `fsctx` is how the command is called here."""
    quoted = shlex.quote(model)
    yield "What is there now"
    yield f"  {done.verdicts}  one row a claim; {done.report}  the same as a page"
    yield f"  {fsctx} status {shlex.quote(str(done.run))}  how the run stands"
    yield "Now your own file (Parquet, JSON Lines, CSV, TSV, text; columns such as claim and label are found)"
    yield f"  {fsctx} plan YOUR_FILE --run my-run --model {quoted}"
    yield f"  {fsctx} submit my-run --batch local -n 2"
    yield f"  {fsctx} status my-run --watch"
    yield f"  {fsctx} collect my-run -o verdicts.parquet"
    if model == FAKE:
        yield "The fake model's verdicts mean nothing. A real one: a Hugging Face folder, a .gguf file or a hub name."
    else:
        yield "A model this small is often wrong: better ones go the same way, as a folder, a .gguf file or a hub name."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
