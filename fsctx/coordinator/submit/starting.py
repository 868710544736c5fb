"""From what a person asks for to started pilots: what the command and the library share."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fsctx.coordinator.submit.base import BatchSystem, PilotRequest
from fsctx.coordinator.submit.bootstrap import choose_environment, interpreter
from fsctx.coordinator.submit.record import Submission
from fsctx.coordinator.submit.submit import rendered, submit
from fsctx.errors import InputError
from fsctx.protocol.hosts import hosts_to_exclude
from fsctx.protocol.manifest import read_context, read_manifest
from fsctx.protocol.needs import needs_of
from fsctx.protocol.orders import read_orders
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for."""

    n: int
    agent_options: tuple[str, ...] = ()
    on_gpu: bool = True
    """Whether agents want one, by their options."""
    environment: str | None = None
    """Digest or name; None: the run's only one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_forced: bool = False
    """Whether pilots are queued even where they would never start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was started, and why that may never run."""

    submission: Submission
    request: PilotRequest
    objections: tuple[str, ...]


def request_for(store: Store, batch: str, asked: Asked) -> PilotRequest:
    """Return the request for pilots that suit the run's models and know its bad hosts.

    Raises:
        InputError: the folder is not a run, or it does not have the environment.
    """
    manifest = read_manifest(store)
    contexts = [read_context(store, digest) for digest in sorted({task.context for task in manifest.tasks})]
    environment = choose_environment(store, asked.environment)
    digest = None if environment is None else environment.digest
    return PilotRequest(
        name=f"{batch}-{secrets.token_hex(4)}",
        run=store.root,
        n=asked.n,
        since_order=read_orders(store).last,
        python=interpreter(digest),
        cores=len(os.sched_getaffinity(0)),
        agent_options=asked.agent_options,
        on_gpu=asked.on_gpu,
        needs=needs_of(contexts, on_gpu=asked.on_gpu, environment=environment),
        excluded=tuple(hosts_to_exclude(store, batch)),
        environment=digest,
    )


def start(store: Store, system: BatchSystem, asked: Asked) -> Started:
    """Start pilots, unless they would never start. The store's root must be absolute.

    Raises:
        InputError: see `request_for` and `submit`; or the batch system has objections and nobody forces it.
    """
    request = request_for(store, system.name, asked)
    rendered(system, request, asked.settings)
    objections = tuple(system.objections(request, asked.settings))
    if objections and not asked.is_forced:
        raise InputError(f"{'; '.join(objections)}; nothing was queued (--force queues pilots all the same)")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    submission = submit(store, system, request, asked.settings, created=created)
    return Started(submission=submission, request=request, objections=objections)
