"""Applications: a program of the user's, stored in the run, that computes the rows instead of a prompt."""

import hashlib
from dataclasses import dataclass, field

from fsctx.errors import Damaged, Missing
from fsctx.protocol import names
from fsctx.store import Store
from fsctx.templates.model import Label, Template

LOAD = "load"
"""The function that makes the context, where the file has one."""

LOAD_TAKES = ("model", "device")
"""What that function may ask for by these names: the path of the model's files (or None), and `cpu` or `cuda:0`."""

BATCH_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What run.json says of an application. Code is executed only where its hash is this one."""

    file: str
    """Its name as planned, for people."""
    function: str
    """Gets the context and a batch of rows."""
    sha256: str
    labels: tuple[str, ...] = ()
    """What its verdicts may be; empty: anything."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Further column → its type, one of `outputs.TYPES`."""
    batch_rows: int = BATCH_ROWS
    """The most rows that it gets at a time."""

    @property
    def template(self) -> Template:
        """What stands for the template of its task: its name and labels."""
        return Template(name=self.function, labels=tuple(Label(name=label, words=label) for label in self.labels))


def read_code(store: Store, app: App) -> bytes:
    """Read an application's file.

    Raises:
        Damaged: it is gone, or it is not the file that was planned.
    """
    name = names.app(app.sha256)
    try:
        code = store.read(name)
    except Missing:
        raise Damaged(f"{store.root}/{name} ({app.file}) is gone: restore it, or plan the run again") from None
    if hashlib.sha256(code).hexdigest() != app.sha256:
        raise Damaged(
            f"{store.root}/{name} ({app.file}) is not the file that was planned, and was not run: "
            "restore it, or plan the run again"
        )
    return code
