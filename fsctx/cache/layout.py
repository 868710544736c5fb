"""The names in a node's cache; the bootstrap of environments spells the same ones.

ROOT/contexts/<digest>/…            a context's files: whole, checked and durable before the folder got its name
ROOT/converted/<digest>/…           the safetensors folder made of a GGUF context
ROOT/environments/<digest>/…        unpacked from an environment's archive by the bootstrap; whole once it has a record
ROOT/incoming/<kind>-<digest>/      being made, resumed by whoever comes next: files/…, and for contexts the journal
ROOT/records/<kind>-<digest>.json   sizes and chunk hashes; of an environment, how many files and folders there must be
ROOT/locks/<digest>                 flock, exclusive: who makes or removes a digest's folders
ROOT/locks/.room                    flock, exclusive: who counts what the cache holds and makes room in it
ROOT/pins/<kind>-<digest>           flock, shared: who uses a folder; exclusive: who removes it. Never unlinked
ROOT/batches/<key>                  how many tokens a batch may have of a model on a device (fsctx.cache.batches)
ROOT/engines/<k>/                   what engines compile and download (fsctx.cache.engines)
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from fsctx.errors import Damaged
from fsctx.protocol.manifest import ModelFile

Kind = Literal["contexts", "converted", "environments"]
KINDS: tuple[Kind, ...] = ("contexts", "converted", "environments")
FOLDERS = (*KINDS, "incoming", "records", "locks", "pins", "engines")

_DIGEST = re.compile(r"[0-9A-Za-z_]{1,128}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are in the cache in the folder `root`."""

    root: Path

    def folder(self, kind: Kind, digest: str) -> Path:
        """Return the folder of what is whole."""
        return self.root / kind / checked(digest)

    def incoming(self, kind: Kind, digest: str) -> Path:
        """Return the folder of what is being made."""
        return self.root / "incoming" / f"{kind}-{checked(digest)}"

    def record(self, kind: Kind, digest: str) -> Path:
        """Return the file that says what a folder should hold."""
        return self.root / "records" / f"{kind}-{checked(digest)}.json"

    def lock(self, digest: str) -> Path:
        """Return a digest's lock."""
        return self.root / "locks" / checked(digest)

    @property
    def room_lock(self) -> Path:
        """The lock of who makes room."""
        return self.root / "locks" / ".room"

    def pin(self, kind: Kind, digest: str) -> Path:
        """Return the file whose lock is a folder's pin."""
        return self.root / "pins" / f"{kind}-{checked(digest)}"


def checked(digest: str) -> str:
    """Return a digest that is safe as a name.

    Raises:
        Damaged: it is none.
    """
    if not _DIGEST.fullmatch(digest):
        raise Damaged(f"a context has the digest {digest!r}, which is none: plan the run again")
    return digest


def safe_path(file: ModelFile) -> str:
    """Return a file's path within its context.

    Raises:
        Damaged: it leads out of the context's folder.
    """
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in file.path:
        raise Damaged(f"a context names the file {file.path!r}, which is not within its folder: plan the run again")
    return str(path)
