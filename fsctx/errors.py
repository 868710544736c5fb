"""Every error that fsctx raises on purpose, grouped by what the caller does next.

    FsctxError
    ├── InputError          fix the input and run the command again      exit 2
    ├── NotComplete         work is left; wait, or start more agents     exit 3
    ├── Damaged             a file of the run is not what was written    exit 4
    ├── StoreError          the filesystem refused; try again            exit 1
    │   ├── Missing         that name is not there
    │   ├── NoSpace         free some space, then try again              exit 2
    │   ├── Forbidden       mend owner or mode, or ask who can           exit 2
    │   └── WrongBytes      a source gave other bytes than recorded: take another
    ├── EngineError         the engine failed on a batch                 recorded on the rows
    │   └── OutOfMemory     use a smaller batch
    ├── Unfit               this device or node cannot do the work       exit 75 (EX_TEMPFAIL)
    └── Misconfigured       no node can do the work as planned           exit 78 (EX_CONFIG)

Messages say what failed, where, what was seen, and what to do, in one line.
"""


class FsctxError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(FsctxError):
    """What the user passed cannot be used."""

    exit_code = 2


class NotComplete(FsctxError):
    """The run has rows without a verdict."""

    exit_code = 3


class Damaged(FsctxError):
    """A file of the run is not what fsctx wrote there."""

    exit_code = 4


class StoreError(FsctxError):
    """The filesystem gave an error; nothing is known about what happened."""


class Missing(StoreError):
    """The name was not there when it was looked for."""


class NoSpace(StoreError):
    """Disk or quota is full; only the user can mend that."""

    exit_code = 2


class Forbidden(StoreError):
    """Owner, mode or mount do not allow it; only the user can mend that."""

    exit_code = 2


class WrongBytes(StoreError):
    """A source gave bytes that are not what was asked for."""


class EngineError(FsctxError):
    """The engine could not compute a batch."""


class OutOfMemory(EngineError):
    """The batch did not fit the device's memory."""


class Unfit(FsctxError):
    """Device or node cannot do the work; another one may."""

    exit_code = 75


class Misconfigured(FsctxError):
    """The work as planned can be done nowhere."""

    exit_code = 78
