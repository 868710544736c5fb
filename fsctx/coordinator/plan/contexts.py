"""Context records: what a model's files are, by content."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fsctx.coordinator.plan.model_files import ModelFiles, find_model
from fsctx.coordinator.plan.request import Progress
from fsctx.errors import InputError
from fsctx.protocol.manifest import Context, ModelFile
from fsctx.protocol.needs import BYTES_PER_PARAM

CHUNK_BYTES = 32 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A context and what its `model` column says: its name, or that and a piece of its digest where names collide."""

    context: Context
    name: str

    @property
    def n_params(self) -> float:
        """About how many parameters it has."""
        return self.context.size_bytes / BYTES_PER_PARAM[self.context.kind]


def find_models(refs: Iterable[str], *, fetch: Callable[[str], Path], progress: Progress) -> tuple[Model, ...]:
    """Read the models' files, in the order given; the same files under two names are one model."""
    contexts: dict[str, Context] = {}
    for ref in refs:
        context = read_context_files(find_model(ref, fetch=fetch), progress=progress)
        contexts.setdefault(context.digest, context)
    names = [context.name for context in contexts.values()]
    return tuple(
        Model(context=c, name=c.name if names.count(c.name) == 1 else f"{c.name}-{c.digest[:8]}")
        for c in contexts.values()
    )


def read_context_files(model: ModelFiles, *, progress: Progress) -> Context:
    """Read a model's files once and name them by their content."""
    total = sum((model.origin / path).stat().st_size for path in model.paths)
    done = 0
    files = []
    for path in model.paths:
        file = _read_file(model.origin / path, path)
        files.append(file)
        done += file.size_bytes
        progress(f"reading {model.name}", done, total)
    context = Context(
        digest="",
        kind=model.kind,
        name=model.name,
        origin=str(model.origin),
        files=tuple(files),
        chunk_bytes=CHUNK_BYTES,
    )
    return replace(context, digest=digest_of(context))


def digest_of(context: Context) -> str:
    """Return a context's digest: SHA-256 over kind, and its files' names, sizes and chunk hashes."""
    digest = hashlib.sha256(f"{context.kind}\n{context.chunk_bytes}\n".encode())
    for file in context.files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{' '.join(file.chunks)}\n".encode())
    return digest.hexdigest()


def _read_file(path: Path, name: str) -> ModelFile:
    chunks: list[str] = []
    size = 0
    try:
        with open(path, "rb", buffering=0) as file:
            while True:
                digest, n_bytes = _read_chunk(file.read)
                if n_bytes == 0:
                    break
                chunks.append(digest)
                size += n_bytes
    except OSError as error:
        raise InputError(f"model file {path} cannot be read ({error.strerror}): check it") from None
    return ModelFile(path=name, size_bytes=size, chunks=tuple(chunks))


def _read_chunk(read: Callable[[int], bytes]) -> tuple[str, int]:
    """Hash the next chunk; it is short only at the end of the file."""
    digest = hashlib.sha256()
    n_bytes = 0
    while n_bytes < CHUNK_BYTES and (piece := read(min(_READ_BYTES, CHUNK_BYTES - n_bytes))):
        digest.update(piece)
        n_bytes += len(piece)
    return digest.hexdigest(), n_bytes
