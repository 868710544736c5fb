"""What a run is: the manifest (run.json) and the context records."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsctx.errors import Damaged, InputError, Missing, StoreError
from fsctx.protocol import codec, names
from fsctx.protocol.apps import App
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.sweep import Sweep
from fsctx.store import PublishForm, Store

Method = Literal["score", "generate", "app"]
"""How a task's verdicts come about; `app`: as the run's application computes them."""

ROW_ID, ROW_CLAIM, ROW_LABEL = "id", "claim", "label"
"""Columns of a shard; `label` is the gold label as given. Rows are in input order."""

SWEEP_SCHEMA = 2
"""Of the manifest of a sweep that stops early: who knows schema 1 alone would take its slices for others."""

EXTRA = "input_"
"""Prefix of a shard's other columns, which are the input's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One context under one template."""

    context: str
    """Digest of the context."""
    model: str
    """What the `model` column says; unique among a run's contexts."""
    template: str
    """Name of the template, or of the application's function."""
    method: Method


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One input as planned."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole of run.json. Written last by plan and never changed."""

    run: str
    """A name unique to this run."""
    version: str
    created: str
    """UTC, ISO 8601; for people, never compared."""
    plan: str
    """Digest of everything that was asked for: the same plan again has the same."""
    geometry: Geometry
    tasks: tuple[Task, ...]
    gold: dict[str, dict[str, str]]
    """Template → gold label as given → label of the template."""
    has_labels: bool
    has_ids: bool
    columns: tuple[str, ...]
    """The input's other columns, as the shards hold them (without the prefix)."""
    inputs: tuple[InputFile, ...]
    ttl_s: float
    save_s: float = 30.0
    hold_s: float = 30.0
    compacts: bool = False
    """Whether agents merge the files of finished buckets; plan says so for runs of many buckets."""
    publish: PublishForm = "symlink"
    """How agents publish here; readers know every form."""
    sweep: Sweep | None = None
    """Set where tasks are dropped on the way."""
    app: App | None = None
    """What computes the rows of all tasks, where that is an application and no prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a context: its size and the SHA-256 of each chunk."""

    path: str
    """Relative to the context's origin, with `/`; no `..`."""
    size_bytes: int
    chunks: tuple[str, ...]
    mtime_ns: int = 0
    """When it was last modified, as the filesystem said; 0 if that is not known. No part of the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a packed software environment is. Its archive carries this record too."""

    packed: Literal["venv", "conda"]
    """A venv needs a Python of the same version on the node; a conda environment brings its own."""
    python: str
    """Major and minor version."""
    soabi: str
    """What its compiled modules were built for, as Python's sysconfig says: platform and C library included."""
    unpacked_bytes: int
    fsctx: str
    """The version of fsctx in it."""


ContextKind = Literal["hf", "classifier", "lora", "gguf", "fake", "env", "folder", "file", "none"]

ADAPTER = "adapter"
"""Folder within a context of kind `lora` that has the adapter's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A context's record: what its files are and where they come from.

    `kind`: `hf` a model folder, `classifier` the same with a model that classifies texts, `lora` either of them and in
    the folder `ADAPTER` what is to be merged into it, `gguf` a single file, `fake` no files at all, `env` a software
    environment's archive; for an application `folder` all files of a folder, `file` one of any sort, `none` no files.
    """

    digest: str
    kind: ContextKind
    name: str
    origin: str
    """Absolute path of the folder that `files` are relative to."""
    adapter: str | None = None
    """Absolute path of the folder that those of them are relative to that are in `ADAPTER`; of kind `lora` alone."""
    files: tuple[ModelFile, ...]
    chunk_bytes: int
    environment: Environment | None = None
    """What a node must offer to it; of kind `env` alone."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def path_in(self, folder: Path) -> Path:
        """Return what to load where the files are in a folder: the folder, or the one file of a kind that is one."""
        return folder / self.files[0].path if self.kind in ("gguf", "env", "file") else folder


def digest_of(context: Context) -> str:
    """Return a context's digest: SHA-256 over kind, and its files' names, sizes and chunk hashes."""
    digest = hashlib.sha256(f"{context.kind}\n{context.chunk_bytes}\n".encode())
    for file in context.files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{' '.join(file.chunks)}\n".encode())
    return digest.hexdigest()


def read_manifest(store: Store) -> Manifest:
    """Read a run's manifest.

    Raises:
        InputError: the folder is not a run, or not a whole one, or a newer fsctx planned it.
        Damaged: run.json cannot be read as a manifest.
    """
    try:
        data = store.read(names.MANIFEST)
    except Missing:
        raise InputError(
            f"{store.root} is not a run (it has no {names.MANIFEST}): pass a folder that `fsctx plan` made"
        ) from None
    return codec.decode(data, Manifest, where=f"{store.root}/{names.MANIFEST}")


def read_context(store: Store, digest: str) -> Context:
    """Read a context's record.

    Raises:
        Damaged: it is gone, or not the record of this digest, which is the hash of what it says.
    """
    name = names.context(digest)
    where = f"{store.root}/{name}"
    try:
        context = codec.decode(store.read(name), Context, where=where)
    except Missing:
        raise Damaged(f"{where} is gone, and the run needs it: restore it, or plan the run again") from None
    if context.digest != digest or (context.kind != "fake" and digest_of(context) != digest):
        raise Damaged(f"{where} does not say what its digest was made of: restore it, or plan the run again")
    return context


def read_environments(store: Store) -> list[Context]:
    """Read the records of a run's software environments; what cannot be read is left out."""
    found = []
    for name in store.list(names.CONTEXTS):
        with suppress(StoreError, Damaged, InputError):
            found.append(read_context(store, name.removesuffix(".json")))
    return [context for context in found if context.kind == "env"]
