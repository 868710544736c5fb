"""The claims that ways are compared on."""

import json
from importlib import resources
from pathlib import Path


def read_claims(path: Path | None, n: int) -> list[str]:
    """Return distinct claims of a JSON Lines file, else of the ones that come with the package."""
    source = resources.files("fsctx.demo") / "claims.jsonl" if path is None else path
    lines = source.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["claim"] for line in lines))[:n]
