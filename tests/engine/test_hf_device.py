"""GPUs, asked for where there are none."""

import pytest

from fsctx.agent.device import preflight
from fsctx.errors import Unfit


def test_a_gpu_that_is_not_there_is_unfit() -> None:
    pytest.importorskip("torch")
    with pytest.raises(Unfit, match="cuda:99"):
        preflight("cuda:99")
