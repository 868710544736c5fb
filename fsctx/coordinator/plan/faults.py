"""What the system says while a plan writes, in our terms."""

import contextlib
import errno
from collections.abc import Iterator

from fsctx.errors import InputError, NoSpace, StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextlib.contextmanager
def disk_faults(where: str) -> Iterator[None]:
    """Turn the system's errors on files of the run into ours.

    Raises:
        NoSpace: disk or quota is full.
        InputError: the folder may not be written to.
    """
    try:
        yield
    except OSError as error:
        seen = f"{where}: {error.strerror or error}"
        if error.errno in _FULL:
            raise NoSpace(f"{seen}: free some space (or raise the quota), then run the same command again") from None
        if error.errno in _REFUSED:
            raise InputError(f"{seen}: choose a folder for --run that you may write to") from None
        raise StoreError(f"{seen}: look at the filesystem, then run the same command again") from None
