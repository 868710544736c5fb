"""From assigned GPUs to the device that an agent works on; the driver is a fake one."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fsctx.agent import device as device_module
from fsctx.agent.device import DeviceInfo, count_gpus, find_device
from fsctx.agent.gpus.base import FakeDriver, Gpu, Holder
from fsctx.agent.gpus.choose import Chosen, choose_gpu, choose_gpus
from fsctx.agent.gpus.fit import BATCH_BYTES, check_fits, check_holds, holders_of, least_bytes
from fsctx.agent.gpus.nvml import Nvml
from fsctx.errors import InputError, Misconfigured, Unfit
from fsctx.protocol.manifest import Context, ModelFile

A10 = Gpu(index=0, uuid="GPU-c4a646d7-0000-1111-2222-333344445555", name="NVIDIA A10")
L4 = Gpu(index=1, uuid="GPU-0f33a1b2-0000-1111-2222-333344445555", name="NVIDIA L4")
SPLIT = Gpu(index=2, uuid="GPU-99999999-0000-1111-2222-333344445555", name="NVIDIA A100", is_split=True)
NODE = [A10, L4, SPLIT]
NO_DRIVER = FakeDriver(None)


@pytest.mark.parametrize("name", ["1", "GPU-0f33a1b2", "gpu-0F33A1B2", L4.uuid])
def test_indices_and_short_and_full_uuids_mean_the_same_gpu(name: str) -> None:
    assert choose_gpu(0, assigned=[name], gpus=NODE) == Chosen(visible="1", gpu=L4)


def test_the_number_counts_within_what_was_assigned() -> None:
    assert choose_gpu(1, assigned=["GPU-0f33a1b2", "0"], gpus=NODE) == Chosen(visible="0", gpu=A10)
    assert choose_gpu(1, assigned=None, gpus=NODE) == Chosen(visible="1", gpu=L4)


def test_without_a_driver_to_ask_cuda_is_told_the_name_as_assigned() -> None:
    assert choose_gpu(0, assigned=["GPU-0f33a1b2"], gpus=None) == Chosen(visible="GPU-0f33a1b2", gpu=None)
    assert choose_gpu(0, assigned=None, gpus=None) is None


@pytest.mark.parametrize("name", ["7", "GPU-deadbeef", "GPU-"])
def test_a_gpu_that_is_not_there_or_may_be_several_is_told_with_those_that_are(name: str) -> None:
    with pytest.raises(Unfit, match=f"{name} that was assigned .*{L4.uuid}"):
        choose_gpu(0, assigned=[name], gpus=NODE)


def test_parts_of_gpus_are_refused_in_words() -> None:
    with pytest.raises(Unfit, match="MIG part"):
        choose_gpu(0, assigned=["MIG-c7384736-a75d-5afc-978f-d2f1294409fd"], gpus=None)
    with pytest.raises(Unfit, match="split by MIG"):
        choose_gpu(0, assigned=["2"], gpus=NODE)


def test_more_gpus_than_were_assigned_is_a_matter_of_the_request() -> None:
    with pytest.raises(Misconfigured, match="assigned 0 GPUs"):
        choose_gpu(0, assigned=[], gpus=NODE)
    with pytest.raises(Unfit, match="not on this node"):
        choose_gpu(0, assigned=None, gpus=[])


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A node with a driver, on which every GPU computes; returns what was tried."""
    asked: list[str] = []

    def trial(device: str) -> DeviceInfo:
        asked.append(device)
        return DeviceInfo(name="NVIDIA L4", kind="cuda", index=0, memory_bytes=24 << 30, free_bytes=20 << 30)

    monkeypatch.setattr(device_module, "preflight", trial)
    monkeypatch.setattr(device_module, "has_driver", lambda: True)
    return asked


def test_an_engine_sees_the_one_gpu_that_was_assigned(tried: list[str]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-0f33a1b2"}
    found = find_device("auto", assigned=["GPU-0f33a1b2"], driver=FakeDriver(NODE), environ=environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert tried == ["cuda:0"]
    assert (found.spec, found.chosen) == ("cuda:0", Chosen(visible="1", gpu=L4))


def test_a_gpu_asked_for_by_number_is_the_first_that_the_engine_sees(tried: list[str]) -> None:
    environ: dict[str, str] = {}
    find_device("cuda:1", assigned=None, driver=FakeDriver(NODE), environ=environ)
    assert environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert tried == ["cuda:0"]


@pytest.mark.parametrize(
    ("asked", "assigned", "gpus"), [("cpu", ["0"], NODE), ("auto", [], NODE), ("auto", None, []), ("cpu", None, None)]
)
def test_where_no_gpu_is_assigned_or_wanted_the_cpu_is_used(
    tried: list[str], asked: str, assigned: list[str] | None, gpus: list[Gpu] | None
) -> None:
    environ: dict[str, str] = {}
    assert find_device(asked, assigned=assigned, driver=FakeDriver(gpus), environ=environ).spec == "cpu"
    assert not tried
    assert not environ


def test_an_assigned_gpu_without_a_driver_is_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "has_driver", lambda: False)
    with pytest.raises(Unfit, match=r"GPU-0f33a1b2 was assigned.*no driver"):
        find_device("auto", assigned=["GPU-0f33a1b2"], driver=NO_DRIVER, environ={})
    assert find_device("auto", assigned=None, driver=NO_DRIVER, environ={}).spec == "cpu"


def test_an_engine_without_a_device_tries_none(tried: list[str]) -> None:
    found = find_device("auto", assigned=["GPU-0f33a1b2"], driver=NO_DRIVER, environ={}, is_used=False)
    assert found.spec == "cpu"
    assert found.chosen is not None
    assert found.chosen.name == "GPU-0f33a1b2"
    assert not tried


def test_gpus_are_counted_for_one_agent_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_gpus(["0", "2"], NO_DRIVER) == 2
    assert count_gpus(None, FakeDriver(NODE)) == 3
    monkeypatch.setattr(device_module, "has_driver", lambda: False)
    assert count_gpus(None, NO_DRIVER) == 0
    monkeypatch.setattr(device_module, "has_driver", lambda: True)
    with pytest.raises(InputError, match="nvidia-ml-py"):
        count_gpus(None, NO_DRIVER)


def test_a_gpu_without_room_is_refused_and_its_holder_named() -> None:
    holder = Holder(pid=4711, who="python of mallory", memory_bytes=20_000_000_000)
    gpu = Gpu(index=0, uuid="GPU-1", name="NVIDIA L4", holders=(holder,))
    found = DeviceInfo(
        name="NVIDIA L4",
        kind="cuda",
        index=0,
        memory_bytes=24 * 10**9,
        free_bytes=3 * 10**9,
        chosen=Chosen(visible="0", gpu=gpu),
    )
    check_fits(found, 3 * 10**9)
    with pytest.raises(Unfit, match=r"3\.0 of 24\.0 GB free.*needs 4\.0 GB"):
        check_fits(found, 4 * 10**9)
    assert holders_of(found) == "; the GPU is held by process 4711 (python of mallory) with 20.0 GB"
    assert holders_of(None) == ""


def test_the_least_that_a_run_needs_is_what_its_smallest_context_needs() -> None:
    contexts = [_context("fake", 0), _context("hf", 8 << 30)]
    assert least_bytes(contexts[1:]) == (4 << 30) + BATCH_BYTES
    assert least_bytes(contexts) == BATCH_BYTES


def test_a_context_that_is_too_large_is_refused_with_how_many_such_gpus_hold_it() -> None:
    found = DeviceInfo(name="NVIDIA L4", kind="cuda", index=0, memory_bytes=24 * 10**9, free_bytes=22 * 10**9)
    large = _context("hf", 140 * 10**9)
    check_holds(found, large, n_devices=4)
    with pytest.raises(Unfit, match=r"take 70\.0 GB .* 2 NVIDIA L4 with 22\.0 GB free .* on 4 such GPUs or more"):
        check_holds(found, large, n_devices=2)
    assert least_bytes([large], 4) == 140 * 10**9 // 8 + BATCH_BYTES
    check_holds(DeviceInfo(name="cpu", kind="cpu", index=0, memory_bytes=1, free_bytes=1), large, n_devices=1)


def test_a_split_model_sees_as_many_gpus_as_it_has_ranks(tried: list[str]) -> None:
    whole = FakeDriver([A10, L4])
    environ: dict[str, str] = {}
    found = find_device("auto", assigned=["GPU-0f33a1b2", "0"], driver=whole, environ=environ, n=2)
    assert environ["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert (tried, found.chosen) == (["cuda:0"], Chosen(visible="1", gpu=L4))


def test_more_ranks_than_gpus_is_refused_with_both_numbers() -> None:
    with pytest.raises(Misconfigured, match="over 4 devices from cuda:0 on needs 4 GPUs, and this job was assigned 2"):
        choose_gpus(0, 4, assigned=["0", "1"], gpus=NODE)
    with pytest.raises(Unfit, match="from cuda:2 on needs 4 GPUs, and this node has 3"):
        choose_gpus(2, 2, assigned=None, gpus=NODE)
    assert choose_gpus(0, 2, assigned=None, gpus=None) == []


def test_a_machine_without_nvidia_gpus_has_no_driver_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml().gpus() is None


def test_the_driver_is_asked_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("pynvml")
    stand_in = _stand_in(real)
    assert [name for name in vars(stand_in) if not hasattr(real, name)] == []
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    [gpu, old] = Nvml().gpus() or ()
    assert (gpu.index, gpu.uuid, gpu.name, gpu.is_split) == (0, "GPU-0", "NVIDIA 0", True)
    assert [holder.pid for holder in gpu.holders] == [2**22 + 1]
    assert "not to be seen" in gpu.holders[0].who
    assert not old.is_split
    assert old.holders == ()


def test_a_driver_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("pynvml")

    def fail() -> None:
        raise real.NVMLError(real.NVML_ERROR_DRIVER_NOT_LOADED)

    stand_in = _stand_in(real)
    stand_in.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    assert Nvml().gpus() is None


def _stand_in(real: Any) -> Any:
    """Two GPUs: one split, one that is too old to know of splitting, and whose processes nobody may see."""

    def newer_only(answer: Any) -> Any:
        def call(handle: int) -> Any:
            if handle:
                raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
            return answer

        return call

    process = SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)  # above the highest number of a process
    return SimpleNamespace(
        NVMLError=real.NVMLError,
        NVML_DEVICE_MIG_ENABLE=real.NVML_DEVICE_MIG_ENABLE,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetName=lambda handle: f"NVIDIA {handle}",
        nvmlDeviceGetMigMode=newer_only([1, 1]),
        nvmlDeviceGetComputeRunningProcesses=newer_only([process]),
    )


def _context(kind: Any, size_bytes: int) -> Context:
    files = (ModelFile(path="model", size_bytes=size_bytes, chunks=()),) if size_bytes else ()
    return Context(digest=kind, kind=kind, name=kind, origin="/nowhere", files=files, chunk_bytes=1)
