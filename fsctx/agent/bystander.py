"""What computes on this node without taking part in a run: no lease, no session, nothing written into the folder."""

import os
import time
from collections.abc import Callable
from functools import partial

from fsctx.agent import host
from fsctx.agent.device import find_device
from fsctx.agent.engines.of_run import check_context, engines_of_run, uses_device
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import Residency
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.sources import source_of_files
from fsctx.cache import NodeCache
from fsctx.cache.engines import keep_on_node


def stand_by(run: RunFiles, options: AgentOptions, *, say: Callable[[str], None]) -> Residency:
    """Return a run's contexts on this device, of which none is loaded yet. Sets what engines read when imported.

    Raises:
        InputError: the options are wrong.
        Unfit: there is no such device here.
    """
    place = host.look_around(os.environ)
    os.environ.update(host.thread_settings(os.environ, place.cores))
    keep_on_node(os.environ, options.cache)
    is_used = uses_device(run, options)
    device = find_device(
        options.device,
        assigned=place.gpus,
        driver=place.driver,
        environ=os.environ,
        is_used=is_used,
    )
    cache = NodeCache(options.cache, quota_bytes=options.cache_quota_bytes)
    return Residency(
        tasks=run.manifest.tasks,
        contexts=run.contexts,
        templates=run.templates,
        mode=options.context,
        engine_for=engines_of_run(run, options, device),
        fetch=source_of_files(options, cache, say=say),
        mend=cache.mend,
        check=partial(check_context, options, device),
        clock=time.monotonic,
    )
