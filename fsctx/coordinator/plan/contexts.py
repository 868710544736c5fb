"""Context records: what a model's files are, by content."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsctx.cache.hashing import describe
from fsctx.coordinator.plan.model_files import NO_FILES, ModelFiles, find_files, find_model
from fsctx.coordinator.plan.request import Progress
from fsctx.errors import InputError
from fsctx.protocol.manifest import ADAPTER, Context, ModelFile, digest_of
from fsctx.protocol.needs import BYTES_PER_PARAM

CHUNK_BYTES = 32 << 20
"""The most that a chunk has."""

_LEAST_BYTES = 1 << 20
_ENOUGH_CHUNKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A context and what its `model` column says: its name, or that and a piece of its digest where names collide."""

    context: Context
    name: str

    @property
    def n_params(self) -> float:
        """About how many parameters it has."""
        return self.context.size_bytes / BYTES_PER_PARAM[self.context.kind]


def find_models(
    refs: Iterable[str], *, fetch: Callable[[str], Path], progress: Progress, base: str | None = None
) -> tuple[Model, ...]:
    """Read the models' files, in the order given; the same files under two names are one model.

    `base`: the model that adapters among them are for.

    Raises:
        InputError: one can't be used, or there is a base and no adapter.
    """
    found = [find_model(ref, fetch=fetch, base=base) for ref in refs]
    if base is not None and all(files.base is None for files in found):
        raise InputError(f"--base {base} is the model that adapters are for, and no --model is the folder of one")
    return _read_models(found, progress)


def find_app_models(refs: Sequence[str], *, fetch: Callable[[str], Path], progress: Progress) -> tuple[Model, ...]:
    """Do the same for an application, which may load any files, or none."""
    return _read_models((find_files(ref, fetch=fetch) for ref in refs) if refs else [NO_FILES], progress)


def _read_models(found: Iterable[ModelFiles], progress: Progress) -> tuple[Model, ...]:
    read = functools.cache(functools.partial(_read, progress))
    contexts: dict[str, Context] = {}
    for files in found:
        context = _context(files, read)
        contexts.setdefault(context.digest, context)
    names = [context.name for context in contexts.values()]
    return tuple(
        Model(context=c, name=c.name if names.count(c.name) == 1 else f"{c.name}-{c.digest[:8]}")
        for c in contexts.values()
    )


def read_context_files(model: ModelFiles, *, progress: Progress) -> Context:
    """Read a model's files once and name them by their content."""
    return _context(model, functools.partial(_read, progress))


def _context(model: ModelFiles, read: Callable[[ModelFiles, int], tuple[ModelFile, ...]]) -> Context:
    base = model.base or model
    chunk_bytes = chunk_bytes_for(_size_bytes(base))
    files = read(base, chunk_bytes)
    if model.base is not None:
        files += tuple(replace(file, path=f"{ADAPTER}/{file.path}") for file in read(model, chunk_bytes))
    context = Context(
        digest="",
        kind=model.kind,
        name=model.name,
        origin=str(base.origin),
        adapter=None if model.base is None else str(model.origin),
        files=files,
        chunk_bytes=chunk_bytes,
    )
    return replace(context, digest=digest_of(context))


def _read(progress: Progress, model: ModelFiles, chunk_bytes: int) -> tuple[ModelFile, ...]:
    total = _size_bytes(model)
    try:
        return describe(
            model.origin,
            model.paths,
            chunk_bytes,
            progress=lambda done: progress(f"reading {model.name}", done, total),
        )
    except OSError as error:
        raise InputError(f"model file {error.filename} cannot be read ({error.strerror}): check it") from None


def _size_bytes(model: ModelFiles) -> int:
    return sum((model.origin / path).stat().st_size for path in model.paths)


def chunk_bytes_for(size_bytes: int) -> int:
    """Return a power of two of which 64 make the context, within bounds: a node gives on whole chunks only."""
    wanted = 1 << max(0, size_bytes // _ENOUGH_CHUNKS - 1).bit_length()
    return min(max(wanted, _LEAST_BYTES), CHUNK_BYTES)
