"""What a shard says of itself, in its footer: whose claims it holds, so that another file in its place is noticed."""

from collections.abc import Mapping

from fsctx.errors import Damaged
from fsctx.protocol import names

_RUN, _NUMBER = b"fsctx.run", b"fsctx.shard"


def marks_of(run: str, number: int) -> dict[bytes, bytes]:
    """Return the metadata of a run's shard."""
    return {_RUN: run.encode(), _NUMBER: b"%d" % number}


def check_marks(found: Mapping[bytes, bytes] | None, *, run: str, number: int) -> None:
    """Check that a file's metadata are those of this shard. A file without marks is of a version that wrote none.

    Raises:
        Damaged: it is another run's shard, or another one of this run.
    """
    seen = {key: value for key, value in (found or {}).items() if key in (_RUN, _NUMBER)}
    if seen and seen != marks_of(run, number):
        whose, which = (seen.get(key, b"?").decode(errors="replace") for key in (_RUN, _NUMBER))
        raise Damaged(f"{names.shard(number)} is shard {which} of run {whose}, not {number} of {run}: restore it")
