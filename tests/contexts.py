"""Small contexts and what befalls them in a cache."""

import hashlib
import os
from pathlib import Path

from fsctx.cache import NodeCache
from fsctx.protocol.manifest import Context, ModelFile

CHUNK = 1000


def context_of(origin: Path, files: dict[str, bytes], kind: str = "hf") -> Context:
    for name, content in files.items():
        path = origin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Context(
        digest="d1",
        kind="gguf" if kind == "gguf" else "hf",
        name="model",
        origin=str(origin),
        files=tuple(
            ModelFile(
                path=name,
                size_bytes=len(content),
                chunks=tuple(
                    hashlib.sha256(content[at : at + CHUNK]).hexdigest() for at in range(0, len(content), CHUNK)
                ),
            )
            for name, content in files.items()
        ),
        chunk_bytes=CHUNK,
    )


def cut(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, CHUNK + 1)


def rot(path: Path) -> None:
    path.chmod(0o600)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def problems(node: NodeCache) -> dict[str, tuple[str, ...]]:
    return {finding.kind: finding.problems for finding in node.verify()}
