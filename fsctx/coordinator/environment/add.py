"""Making an environment known to a run: a context record beside those of the models."""

import dataclasses
from pathlib import Path

from fsctx.coordinator.environment.archive import read_archive
from fsctx.coordinator.plan.contexts import read_context_files
from fsctx.coordinator.plan.model_files import ModelFiles
from fsctx.coordinator.plan.request import Progress
from fsctx.protocol import codec, names
from fsctx.protocol.manifest import Context, read_manifest
from fsctx.store import Store


def add(store: Store, archive: Path, *, progress: Progress) -> Context:
    """Write the record of an environment's archive into a run and return it. Again changes nothing.

    Which environment a pilot uses is said on its command line, so a run may have several and run.json never changes.

    Raises:
        InputError: not a run, or not an archive of `fsctx env pack`.
        Damaged: the archive is.
    """
    read_manifest(store)
    archive = archive.absolute()
    environment = read_archive(archive, progress=lambda done, total: progress(f"checking {archive.name}", done, total))
    files = ModelFiles(
        kind="env", name=archive.name.removesuffix(".tar.gz"), origin=archive.parent, paths=(archive.name,)
    )
    context = dataclasses.replace(read_context_files(files, progress=progress), environment=environment)
    store.replace(names.context(context.digest), codec.encode(context))
    return context
