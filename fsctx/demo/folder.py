"""The folder that a demo works in: each try has its own run, claims and verdicts, with a number.

DIR/claims-1.jsonl    what was planned
DIR/run-1/            the run
DIR/verdicts-1.parquet, DIR/report-1.html    what was collected
"""

import itertools
import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import fsctx.demo
from fsctx.errors import InputError

_OURS = re.compile(r"^\.?(?:claims|run|verdicts|report)-(\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Where one demo keeps what."""

    folder: Path
    number: int

    @property
    def claims(self) -> Path:
        """The claims that are planned."""
        return self.folder / f"claims-{self.number}.jsonl"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / f"run-{self.number}"

    @property
    def verdicts(self) -> Path:
        """What is collected."""
        return self.folder / f"verdicts-{self.number}.parquet"

    @property
    def report(self) -> Path:
        """The page with the statistics."""
        return self.folder / f"report-{self.number}.html"


def new_try(folder: Path, *, n_claims: int) -> Try:
    """Write the first claims that come with fsctx into a folder, under the next number that is free.

    Raises:
        InputError: the folder cannot be used, or holds what no demo put there.
    """
    text = "".join(itertools.islice(_claim_lines(), n_claims))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = _next_number(folder)
        while not _create(Try(folder=folder, number=number).claims, text):
            number += 1
    except OSError as error:
        seen = error.strerror or error
        raise InputError(f"{folder} cannot be used for the demo ({seen}): pass another one: `fsctx demo DIR`") from None
    return Try(folder=folder, number=number)


def _claim_lines() -> list[str]:
    text = (resources.files(fsctx.demo) / "claims.jsonl").read_text(encoding="utf-8")
    return text.splitlines(keepends=True)


def _next_number(folder: Path) -> int:
    matches = {name: _OURS.match(name) for name in os.listdir(folder)}
    strange = sorted(name for name, match in matches.items() if match is None)
    if strange:
        raise InputError(
            f"{folder} holds what no demo put there ({', '.join(strange[:3])}): "
            "pass a new or empty folder, as in `fsctx demo DIR`"
        )
    return 1 + max((int(match[1]) for match in matches.values() if match), default=0)


def _create(path: Path, text: str) -> bool:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
