"""Where an agent gets the files of a context from."""

import time
from collections.abc import Callable, Collection
from pathlib import Path

from fsctx.agent.engines.base import Engine
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.cache import Fetched, NodeCache
from fsctx.cache.chunks import Bring
from fsctx.cache.origin import InPlace, from_origin
from fsctx.cache.root import network_of
from fsctx.errors import Misconfigured, NoSpace, Unfit
from fsctx.protocol.manifest import Context

Source = Callable[[Context, Engine], Fetched]


def source_of_files(
    options: AgentOptions, cache: NodeCache, *, say: Callable[[str], None], bring: Bring = from_origin
) -> Source:
    """Return what brings a context's files to the node, or, context-agnostic, says where they are."""
    in_place = InPlace()
    if options.context == ContextMode.AGNOSTIC:
        return lambda context, _engine: _use(in_place, context)
    network = network_of(options.cache)
    if network is not None:
        say(f"the cache {options.cache} is on a shared filesystem ({network}): pass --cache DIR on the node's own disk")

    told: set[str] = set()

    def fetch(context: Context, engine: Engine) -> Fetched:
        cache.release()  # whoever asks for a context has done with the one before
        try:
            if context.kind == "gguf" and engine.convert is not None:
                return cache.converted(context, engine.convert, bring)
            return cache.fetch(context, bring)
        except NoSpace as error:
            if context.adapter is not None:
                raise Unfit(f"{context.name} and its adapter find no room on this node: {error}") from None
            note = f"{context.name} is read from {context.origin} each time: {error}"
            if context.digest not in told:
                told.add(context.digest)
                say(note)
            return _use(in_place, context, note=note)

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


def _use(in_place: InPlace, context: Context, *, note: str = "") -> Fetched:
    """Use a context's files where they are: on the shared filesystem.

    Raises:
        Misconfigured: they are in two folders there, and engines load one.
    """
    if context.adapter is not None:
        raise Misconfigured(
            f"{context.name} is in two folders, {context.origin} and {context.adapter}, which only a node's cache puts "
            "together: use --context full or partial"
        )
    began_s = time.monotonic()
    in_place.check(context)
    return Fetched(
        path=context.path_in(Path(context.origin)),
        source="origin",
        seconds=time.monotonic() - began_s,
        bytes=0,
        size_bytes=context.size_bytes,
        note=note,
    )
