"""What every command's help ends with: examples, exit codes, what to read next. The docs are generated from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXIT_CODES: Mapping[int, str] = {
    0: "success, also where nothing was to do",
    1: "the system refused; try again",
    2: "something to mend in the call or its input",
    3: "not complete",
    4: "damaged, or unsafe",
    75: "this device or node cannot do the work, another may",
    78: "no node can do the work as planned",
    130: "interrupted",
}
"""All that fsctx ever ends with. In a batch job, agents end with 78 instead of 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """The end of a command's help."""

    examples: Sequence[str]
    exits: Sequence[int] = (0, 1, 2)
    see: Sequence[str] = ()


MANUALS: Mapping[str, Manual] = {
    "plan": Manual(
        examples=(
            "fsctx plan claims.jsonl --run my-run --model /models/SmolLM2-1.7B-Instruct",
            "fsctx plan 'parts/*.csv.gz' --run my-run --model fake --claim-column statement --map half-true=REFUTED",
            "fsctx plan claims.parquet --run sweep --model a.gguf --model b.gguf --template fever --template liar",
        ),
        see=("submit", "agent", "status"),
    ),
    "agent": Manual(
        examples=(
            "fsctx agent my-run",
            "fsctx agent my-run --device all --cache /scratch/fsctx --walltime 3600",
            "fsctx agent my-run --engine fake:rows_per_s=50,load_s=20",
        ),
        exits=(0, 1, 2, 4, 75, 78),
        see=("submit", "status", "logs", "cache"),
    ),
    "submit": Manual(
        examples=(
            "fsctx submit my-run --batch local -n 2",
            "fsctx submit my-run --batch htcondor -n 100 --dry-run",
            "fsctx submit my-run --batch slurm --keep 20 --every 300 -- --idle-exit 600",
        ),
        see=("status", "logs", "stop", "env"),
    ),
    "status": Manual(
        examples=("fsctx status my-run", "fsctx status my-run --watch", "fsctx status my-run --json"),
        exits=(0, 1, 2, 4),
        see=("logs", "collect", "report"),
    ),
    "logs": Manual(
        examples=("fsctx logs my-run", "fsctx logs my-run --follow", "fsctx logs my-run --json"),
        exits=(0, 1, 2, 4),
        see=("status", "report"),
    ),
    "collect": Manual(
        examples=(
            "fsctx collect my-run -o verdicts.parquet --report report.html",
            "fsctx collect my-run -o so-far.csv --partial",
            "fsctx collect my-run --json",
        ),
        exits=(0, 1, 2, 3, 4),
        see=("status", "report", "retry"),
    ),
    "report": Manual(
        examples=("fsctx report my-run -o report.html",), exits=(0, 1, 2, 4), see=("collect", "status --watch")
    ),
    "audit": Manual(
        examples=("fsctx audit my-run --replay 1%", "fsctx audit my-run --replay 500 --json"),
        exits=(0, 1, 2, 3, 4, 75, 78),
        see=("collect", "report"),
    ),
    "retry": Manual(
        examples=("fsctx retry my-run", "fsctx retry my-run 17 18"), exits=(0, 1, 2, 4), see=("status", "collect")
    ),
    "stop": Manual(
        examples=("fsctx stop my-run --drain", "fsctx stop my-run"), exits=(0, 1, 2, 4), see=("submit", "status")
    ),
    "doctor": Manual(
        examples=("fsctx doctor .", "fsctx doctor . --wait 300", "fsctx doctor . --peer"),
        exits=(0, 1, 2, 3, 4),
        see=("plan", "submit --doctor"),
    ),
    "advise": Manual(
        examples=(
            "fsctx advise --model /models/Llama-3.1-70B-Instruct --device H100 --count 4",
            "fsctx advise --model model.gguf --device A10 --objective latency --sla-ms 500",
        ),
        see=("tune", "agent"),
    ),
    "tune": Manual(examples=("fsctx tune my-run --device cuda:0",), exits=(0, 1, 2, 4, 75, 78), see=("advise",)),
    "cache": Manual(
        examples=("fsctx cache list", "fsctx cache verify", "fsctx cache prune --days 30"),
        exits=(0, 1, 2, 4),
        see=("agent", "env"),
    ),
    "env": Manual(
        examples=("fsctx env pack fsctx-env.tar.gz", "fsctx env add my-run fsctx-env.tar.gz"),
        exits=(0, 1, 2, 4),
        see=("submit", "cache"),
    ),
    "demo": Manual(examples=("fsctx demo", "fsctx demo --model fake"), exits=(0, 1, 2, 130), see=("plan", "submit")),
    "completion": Manual(
        examples=('eval "$(fsctx completion bash)"', "fsctx completion fish > ~/.config/fish/completions/fsctx.fish"),
        exits=(0, 2),
    ),
    "version": Manual(examples=("fsctx version", "fsctx version --json"), exits=(0,), see=("doctor",)),
}


def epilog(manual: Manual) -> str:
    """Return the end of a command's help, in click's notation: its mark of a paragraph whose lines are kept."""
    examples = "\n".join(f"  {example}" for example in manual.examples)
    exits = "\n".join(f"  {code:<3} {EXIT_CODES[code]}" for code in manual.exits)
    see = ", ".join(f"fsctx {name} --help" for name in manual.see)
    return f"\b\nExamples:\n{examples}\n\n\b\nExit codes:\n{exits}" + (f"\n\nSee also: {see}" if see else "")
