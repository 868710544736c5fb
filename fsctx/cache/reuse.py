"""Chunks that other contexts of this node have already: a model with an adapter is mostly the model."""

import contextlib

from fsctx.cache.chunks import Incoming, Place, Shelf
from fsctx.cache.folders import Folders
from fsctx.errors import Damaged, WrongBytes


def copy_from_node(folders: Folders, incoming: Incoming) -> None:
    """Put into a context what whole contexts beside it have of it. What vanishes or is wrong there is left out."""
    whole = [entry.digest for entry in folders.entries() if entry.is_whole and entry.kind == "contexts"]
    with contextlib.suppress(Damaged):  # a record that contradicts itself
        records = [record for digest in whole if (record := folders.record("contexts", digest)) is not None]
        shelf = Shelf(folders.root, records)
        for chunk in incoming.missing():
            place = shelf.place(chunk.sha256)
            if place is not None:
                with contextlib.suppress(WrongBytes):
                    incoming.put(chunk, _read(place))


def _read(place: Place) -> bytes:
    """Return the bytes that are there; fewer where the file is gone, or can't be read."""
    try:
        with open(place.path, "rb") as file:
            file.seek(place.offset)
            return file.read(place.size_bytes)
    except OSError:
        return b""
