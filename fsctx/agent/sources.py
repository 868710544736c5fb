"""Where an agent gets the files of a context from."""

import dataclasses
import time
from collections.abc import Callable, Collection
from pathlib import Path

from fsctx.agent.engines.base import Engine
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.cache import Fetched, NodeCache
from fsctx.protocol.manifest import Context

Source = Callable[[Context, Engine], Fetched]


def source_of_files(options: AgentOptions) -> Source:
    """Return what brings a context's files to the node, or, context-agnostic, says where they are."""
    if options.context == ContextMode.AGNOSTIC:
        return _in_place
    cache = NodeCache(options.cache)

    def fetch(context: Context, engine: Engine) -> Fetched:
        began_s = time.monotonic()
        fetched = cache.fetch(context)
        if context.kind == "gguf" and engine.convert is not None:
            folder = cache.converted(context, engine.convert)
            return dataclasses.replace(fetched, path=folder, seconds=time.monotonic() - began_s)
        return fetched

    return fetch


def contexts_on_node(options: AgentOptions) -> Callable[[], Collection[str]]:
    """Return what tells the contexts whose files are in this node's cache. A hint: they may go at any time."""
    if options.context == ContextMode.AGNOSTIC:
        return tuple

    def look() -> Collection[str]:
        try:
            return {entry.digest for entry in NodeCache(options.cache).entries()}
        except OSError:  # somebody removes files, or the folder cannot be read: whoever fetches will say so
            return ()

    return look


def _in_place(context: Context, _engine: Engine) -> Fetched:
    """Use a context's files where they are: on the shared filesystem."""
    origin = Path(context.origin)
    path = origin / context.files[0].path if context.kind == "gguf" else origin
    return Fetched(path=path, source="origin", seconds=0.0, bytes=0)
