"""Where the scripts are that bring up test beds on this machine: they are no part of the checkout."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("FSCTX_TESTBEDS") or Path(__file__).parents[2] / "shared/testbeds")
"""Beside the checkout, unless $FSCTX_TESTBEDS says where."""

SHARED_FILESYSTEMS = FOLDER / "sharedfs"
BATCH_SYSTEMS = FOLDER / "condor"
