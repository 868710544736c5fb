"""A run as an agent reads it at its start."""

from dataclasses import dataclass

from fsctx.errors import InputError, Missing
from fsctx.protocol import names
from fsctx.protocol.manifest import Context, Manifest, read_context, read_manifest
from fsctx.protocol.templates import read_template
from fsctx.store import Store
from fsctx.templates.load import used_columns
from fsctx.templates.model import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The manifest, and the contexts and templates that its tasks name; of an application, what stands for those."""

    store: Store
    manifest: Manifest
    contexts: dict[str, Context]
    templates: dict[str, Template]

    @property
    def kinds(self) -> set[str]:
        """The kinds of contexts that there are (see `Context.kind`)."""
        return {context.kind for context in self.contexts.values()}

    def labels(self, task: int) -> tuple[str, ...]:
        """Return the labels of a task."""
        return self.templates[self.manifest.tasks[task].template].label_names

    def columns(self, task: int) -> tuple[str, ...]:
        """Return the input's columns that a task's template uses; an application gets all of them."""
        if self.manifest.app is not None:
            return self.manifest.columns
        used = used_columns(self.templates[self.manifest.tasks[task].template])
        return tuple(column for column in self.manifest.columns if column in used)


def read_run(store: Store) -> RunFiles:
    """Read what an agent needs to know of a run.

    Raises:
        InputError: not a run, or a newer one.
        Damaged: a record or template is gone or cannot be read.
    """
    manifest = read_manifest(store)
    contexts = {task.context: read_context(store, task.context) for task in manifest.tasks}
    app, planned = manifest.app, dict.fromkeys(task.template for task in manifest.tasks)
    templates = {name: app.template if app else read_template(store, name) for name in planned}
    return RunFiles(store=store, manifest=manifest, contexts=contexts, templates=templates)


def check_still_there(store: Store) -> None:
    """Look whether the run stands as it did when the agent started.

    Raises:
        InputError: it is gone; to wait for it would be to wait for ever.
        StoreError: the filesystem refused.
    """
    try:
        store.read(names.MANIFEST)
    except Missing:
        raise InputError(
            f"{store.root} is gone (removed, moved or unmounted while this agent worked on it): "
            "put it back and start agents again"
        ) from None
