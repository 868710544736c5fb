"""The cache of a node: each context fetched once, shared by all its agents, removed when room is needed."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fsctx.cache.chunks import FILES, Bring, Incoming
from fsctx.cache.folders import Entry, Folders, refusals
from fsctx.cache.hashing import describe, problem_with
from fsctx.cache.layout import Kind, safe_path
from fsctx.cache.origin import from_origin
from fsctx.cache.pins import Pins
from fsctx.cache.reuse import copy_from_node
from fsctx.cache.room import Room
from fsctx.errors import Damaged, NoSpace, StoreError, Unfit
from fsctx.protocol.manifest import Context

Source = Literal["node", "peer", "origin"]

_CONVERTED_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Where a context's files are: a folder, or the file itself where there is only one by its kind."""

    path: Path
    source: Source
    """Where most of what was copied now came from; `node` if nothing was."""
    seconds: float
    """Of looking, waiting and copying."""
    bytes: int
    """Copied now."""
    convert_s: float = 0.0
    """Seconds until it was converted, besides."""
    size_bytes: int = 0
    """Of all that is there to load."""
    bytes_by_source: dict[str, int] = field(default_factory=dict)
    note: str = ""
    """What a person should know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What `verify` saw in one folder."""

    kind: Kind
    digest: str
    problems: tuple[str, ...]
    """Empty for a sound folder."""
    is_in_use: bool
    """A damaged folder that is in use is left where it is."""


class NodeCache:
    """The cache in the folder `root`, shared by all processes of one user on the node.

    What one instance fetched is pinned, so that nobody removes it, until its `release` or the end of the process.
    """

    def __init__(self, root: Path, *, quota_bytes: int | None = None) -> None:
        self.root = root
        self._folders = Folders(root)
        self._room = Room(folders=self._folders, quota_bytes=quota_bytes)
        self._pins = Pins()

    def fetch(self, context: Context, bring: Bring = from_origin) -> Fetched:
        """Bring a context's files to the node, unless they are here; one process of the node does it, others wait.

        `bring` puts the missing chunks in. What it brought before it raised, or was killed, is kept for the next time,
        except where the origin changed or the disk is full.

        Raises:
            InputError: the cache's folder cannot be used, or its quota is smaller than the context.
            NoSpace: the disk or the quota is full of what is in use.
            Unfit, Damaged, StoreError: see `from_origin`.
        """
        began_s = time.monotonic()
        if context.kind in ("fake", "none"):
            return Fetched(path=self.root, source="node", seconds=0.0, bytes=0)
        self._room.check_quota(context.name, context.size_bytes)
        brought: dict[str, int] = {}
        with self._making("contexts", context) as is_needed:
            if is_needed:
                brought = self._bring(context, bring)
        self._folders.touch("contexts", context.digest)
        return Fetched(
            path=context.path_in(self._folders.layout.folder("contexts", context.digest)),
            source=_main_source(brought),
            seconds=time.monotonic() - began_s,
            bytes=sum(brought.values()),
            size_bytes=context.size_bytes,
            bytes_by_source=brought,
        )

    def converted(self, context: Context, convert: Callable[[Path, Path], None], bring: Bring = from_origin) -> Fetched:
        """Return the folder made of a GGUF context by `convert(file, new_folder)`; made, and the file fetched, once.

        `convert` must check what it made before it returns. Its errors pass through and leave nothing behind.
        """
        began_s = time.monotonic()
        found = Fetched(path=self.root, source="node", seconds=0.0, bytes=0)
        if not self._is_here("converted", context):
            found = self.fetch(context, bring)
            with self._making("converted", context) as is_needed:
                if is_needed:
                    self._convert(context, convert, found.path)
            found = dataclasses.replace(found, convert_s=time.monotonic() - began_s - found.seconds)
        self._folders.touch("converted", context.digest)
        record = self._folders.record("converted", context.digest)
        return dataclasses.replace(
            found,
            path=self._folders.layout.folder("converted", context.digest),
            size_bytes=record.size_bytes if record else 0,
        )

    def release(self) -> None:
        """Let go of all that this instance fetched: it may be removed from now on."""
        self._pins.release()

    def entries(self) -> list[Entry]:
        """Return what is in the cache, longest unused first. Makes nothing, in whatever folder this is.

        Raises:
            InputError: the folder cannot be used as a cache.
        """
        if not os.path.lexists(self.root):
            return []
        self._folders.check()
        with refusals(self.root):
            return self._folders.entries()

    def verify(self) -> list[Finding]:
        """Read everything that is whole and compare it with its hashes.

        What is damaged and not in use is taken out of use: of a context, only the wrong chunks are fetched again; what
        was converted is converted again.
        """
        return [self._verify(entry) for entry in self.entries() if entry.is_whole]

    def mend(self, context: Context) -> bool:
        """Let go of a context, compare all that is here of it with its hashes, and take what is wrong out of use.

        Tells whether something was wrong.

        Raises:
            Unfit: it is, and another process uses it.
        """
        self.release()
        own = [entry for entry in self.entries() if entry.is_whole and entry.digest == context.digest]
        wrong = [finding for finding in map(self._verify, own) if finding.problems]
        if any(finding.is_in_use for finding in wrong):
            seen = wrong[0].problems[0]
            raise Unfit(f"{seen}, and other agents use it: `fsctx cache verify` mends it when they are gone")
        return bool(wrong)

    def prune(self, *, unused_s: float = 0.0, digests: frozenset[str] | None = None) -> list[Entry]:
        """Remove folders unused for so long (of these digests alone, if given), and all that was half made.

        Returns what went. What another process uses, makes or removes right now is left alone.
        """
        return [
            entry
            for entry in self.entries()
            if not entry.is_whole or (entry.unused_s >= unused_s and (digests is None or entry.digest in digests))
            if self._folders.evict(entry)
        ]

    def _is_here(self, kind: Kind, context: Context) -> bool:
        """Pin a folder, then tell whether it stands: in this order, what stands cannot go."""
        self._folders.prepare()
        with refusals(self.root):
            self._pins.take(self._folders.layout.pin(kind, context.digest))
        return self._stands(kind, context)

    def _stands(self, kind: Kind, context: Context) -> bool:
        record = context if kind == "contexts" else self._folders.record(kind, context.digest)
        return record is not None and self._folders.stands(kind, record)

    @contextlib.contextmanager
    def _making(self, kind: Kind, context: Context) -> Iterator[bool]:
        """Tell whether a folder is to be made; if so, nobody else of the node makes it. On errors half of it is kept.

        What can't be gone on with is not: where the origin changed or the disk is full.
        """
        if self._is_here(kind, context):
            yield False
            return
        with self._folders.locked(self._folders.layout.lock(context.digest)):
            try:
                with refusals(self.root):
                    yield not self._stands(kind, context)
            except (Damaged, NoSpace):
                self._folders.discard(kind, context.digest)
                raise

    def _bring(self, context: Context, bring: Bring) -> dict[str, int]:
        folders, digest = self._folders, context.digest
        if os.path.lexists(folders.layout.folder("contexts", digest)):
            folders.demote(context)
        folders.write_record("contexts", context)
        with self._room.made("contexts", digest, context.size_bytes):
            incoming = Incoming(context, folders.layout.incoming("contexts", digest))
        with contextlib.closing(incoming):
            copy_from_node(folders, incoming)
            brought = bring(incoming)
            missing = incoming.missing()
        if missing:
            raise StoreError(f"{len(missing)} chunks of {context.name} were not brought to {self.root}: try again")
        folders.finish("contexts", context)
        return brought.bytes_by_source

    def _convert(self, context: Context, convert: Callable[[Path, Path], None], source: Path) -> None:
        folders, digest = self._folders, context.digest
        new = folders.layout.incoming("converted", digest) / FILES
        folders.discard("converted", digest)
        new.parent.mkdir(mode=0o700)
        try:
            convert(source, new)
        except BaseException:
            folders.discard("converted", digest)
            raise
        paths = sorted(path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file())
        files = describe(new, paths, _CONVERTED_CHUNK_BYTES)
        record = dataclasses.replace(context, files=files, chunk_bytes=_CONVERTED_CHUNK_BYTES)
        with self._room.made("converted", digest, record.size_bytes):
            folders.finish("converted", record)

    def _verify(self, entry: Entry) -> Finding:
        record = self._folders.record(entry.kind, entry.digest)
        problems = _problems(record, self._folders.layout.folder(entry.kind, entry.digest))
        is_in_use = False
        if problems:
            with self._folders.idle(entry) as is_idle:
                is_in_use = not is_idle
                if is_idle and record is not None and entry.kind == "contexts":
                    self._folders.demote(record)
                elif is_idle:
                    self._folders.remove(entry.kind, entry.digest)
        return Finding(kind=entry.kind, digest=entry.digest, problems=problems, is_in_use=is_in_use)


def _problems(record: Context | None, folder: Path) -> tuple[str, ...]:
    if record is None:
        return (f"{folder} has no record of what it should hold",)
    found = (problem_with(file, folder, safe_path(file), record.chunk_bytes) for file in record.files)
    return tuple(problem for problem in found if problem is not None)


def _main_source(brought: dict[str, int]) -> Source:
    if not brought:
        return "node"
    return "peer" if brought.get("peer", 0) > brought.get("origin", 0) else "origin"
