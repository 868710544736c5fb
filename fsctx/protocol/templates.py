"""Templates as a run holds them."""

from fsctx.errors import Damaged, InputError, Missing
from fsctx.protocol import names
from fsctx.store import Store
from fsctx.templates.load import parse_template
from fsctx.templates.model import Template


def read_template(store: Store, name: str) -> Template:
    """Read a template as it was planned.

    Raises:
        Damaged: it is gone, or no template any more.
    """
    where = f"{store.root}/{names.template(name)}"
    try:
        return parse_template(store.read(names.template(name)).decode(), where=where)
    except Missing:
        raise Damaged(f"{where} is not there: restore it") from None
    except (InputError, UnicodeDecodeError) as error:
        raise Damaged(f"{where} is not what was planned ({error}): restore it") from None
