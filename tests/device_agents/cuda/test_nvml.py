"""The driver's library through its binding: what is missing is None, what is lost is transient."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_gpu import A100, H100, HARDWARE, MISSING, READING, SLICE, FakeNvmlError, fake_binding

from fleetrank.device_agents.cuda.nvml import Nvml, open_nvml
from fleetrank.device_agents.cuda.nvml_library import (
    Code,
    Driver,
    Gpu,
    GpuProcess,
    GpuReading,
    Hardware,
    as_error,
    is_absent,
    is_untold,
)
from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError

NOT_SUPPORTED = FakeNvmlError(Code.NOT_SUPPORTED)
LOST = FakeNvmlError(Code.GPU_IS_LOST)


def test_what_an_h100_answers_becomes_values() -> None:
    library = Nvml(fake_binding())
    assert library.driver() == Driver(version="580.159.04", cuda=(13, 0))
    assert library.find().gpus == (H100,)
    assert library.hardware(H100) == HARDWARE
    assert library.read(H100) == READING
    assert library.processes(H100) == ()
    assert (library.energy_mj(H100), library.power_mw(H100)) == (987_654_321, 120_500)


@pytest.mark.parametrize("answer", [NOT_SUPPORTED, MISSING, FakeNvmlError(Code.FUNCTION_NOT_FOUND)])
def test_a_reading_this_gpu_does_not_have_is_none(answer: object) -> None:
    names = [name for name in vars(fake_binding()) if name.startswith("nvmlDeviceGet")]
    kept = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"}
    library = Nvml(fake_binding(**{name: answer for name in names if name not in kept}))
    assert library.hardware(H100) == Hardware()
    assert library.read(H100) == GpuReading()
    assert library.processes(H100) is None
    assert (library.energy_mj(H100), library.power_mw(H100)) == (None, None)
    assert len(library.find().gpus) == 1


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.UNKNOWN])
def test_one_reading_that_fails_leaves_the_others(code: Code) -> None:
    failed = FakeNvmlError(code)
    links = [1] * 12

    def link(_handle: object, number: int) -> int:
        if number >= len(links):
            raise failed
        return links[number]

    library = Nvml(fake_binding(nvmlDeviceGetNvLinkState=link, nvmlDeviceGetPowerUsage=failed))
    assert library.hardware(H100) == replace(HARDWARE, nvlinks=12)
    assert library.read(H100) == replace(READING, power_mw=None)


def test_a_clock_that_cannot_be_is_an_error_and_not_a_missing_right() -> None:
    refused = FakeNvmlError(Code.INVALID_ARGUMENT)
    with pytest.raises(PermanentError):
        Nvml(fake_binding(nvmlDeviceSetGpuLockedClocks=refused)).lock_clocks(H100, 1)


def test_throttle_reasons_are_read_by_their_older_name_too() -> None:
    library = Nvml(
        fake_binding(
            nvmlDeviceGetCurrentClocksEventReasons=MISSING,
            nvmlDeviceGetCurrentClocksThrottleReasons=0x44,
        )
    )
    assert library.read(H100).event_reasons == 0x44


def test_a_gpu_that_fell_off_the_bus_is_counted_and_transient() -> None:
    library = Nvml(fake_binding(nvmlDeviceGetHandleByIndex=LOST, nvmlDeviceGetClockInfo=LOST))
    assert (library.find().gpus, library.find().n_lost) == ((), 1)
    with pytest.raises(TransientError, match="does not answer"):
        library.read(H100)


def test_processes_of_both_kinds_are_listed_once() -> None:
    mine = SimpleNamespace(pid=7, usedGpuMemory=2048)
    desktop = SimpleNamespace(pid=9, usedGpuMemory=None)
    library = Nvml(
        fake_binding(
            nvmlDeviceGetComputeRunningProcesses=[mine],
            nvmlDeviceGetGraphicsRunningProcesses=[desktop, mine],
            nvmlSystemGetProcessName=b"/usr/bin/python3",
        )
    )
    assert library.processes(H100) == (
        GpuProcess(pid=7, name="/usr/bin/python3", used_bytes=2048),
        GpuProcess(pid=9, name="/usr/bin/python3", used_bytes=None),
    )


def test_processes_of_other_namespaces_have_no_number_and_are_counted_all_the_same() -> None:
    hidden = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (0, 0, 0xFFFFFFFF)]
    nobody = FakeNvmlError(Code.NOT_FOUND)
    library = Nvml(
        fake_binding(nvmlDeviceGetComputeRunningProcesses=hidden, nvmlSystemGetProcessName=nobody)
    )
    found = library.processes(H100)
    assert found is not None
    assert sorted(it.pid for it in found) == [0, 0, 0xFFFFFFFF]


def test_instances_of_a_divided_gpu_are_devices_of_their_own() -> None:
    instances = ["slice", FakeNvmlError(Code.NOT_FOUND)]

    def instance(_handle: object, number: int) -> object:
        if isinstance(instances[number], Exception):
            raise instances[number]
        return instances[number]

    def of_handle(whole: str, part: str) -> object:
        return lambda handle: part if handle == "slice" else whole

    library = Nvml(
        fake_binding(
            nvmlDeviceGetMigMode=[1, 1],
            nvmlDeviceGetMaxMigDeviceCount=2,
            nvmlDeviceGetMigDeviceHandleByIndex=instance,
            nvmlDeviceGetUUID=of_handle(A100.uuid, SLICE.uuid),
            nvmlDeviceGetName=of_handle(A100.name, SLICE.name),
        )
    )
    whole, part = library.find().gpus
    assert whole == Gpu(uuid=A100.uuid, name=A100.name, index=0, is_divided=True)
    assert part == Gpu(uuid=SLICE.uuid, name=SLICE.name, index=0, parent_uuid=A100.uuid)
    # The counter of the whole would count the neighbours.
    assert (library.energy_mj(part), library.power_mw(part)) == (None, None)


def test_clocks_are_locked_only_where_that_is_allowed() -> None:
    refused = Nvml(fake_binding())
    assert not refused.lock_clocks(H100, 1410)
    assert not refused.unlock_clocks(H100)
    asked: list[tuple[object, ...]] = []
    allowed = Nvml(
        fake_binding(
            nvmlDeviceSetGpuLockedClocks=lambda *arguments: asked.append(arguments),
            nvmlDeviceResetGpuLockedClocks=lambda *arguments: asked.append(arguments),
        )
    )
    assert allowed.lock_clocks(H100, 1410)
    assert allowed.unlock_clocks(H100)
    assert asked == [("handle", 1410, 1410), ("handle",)]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (Code.LIBRARY_NOT_FOUND, "no working NVIDIA driver"),
        (Code.DRIVER_NOT_LOADED, "no working NVIDIA driver"),
        (Code.LIB_RM_VERSION_MISMATCH, "different versions"),
        (Code.NO_PERMISSION, "may not use"),
    ],
)
def test_a_driver_that_cannot_be_used_says_why(code: Code, message: str, tmp_path) -> None:
    with pytest.raises(UnusableDeviceError, match=message):
        Nvml(fake_binding(nvmlInit=FakeNvmlError(code)), root=tmp_path)


def test_a_host_with_another_makers_gpu_is_told_that_no_agent_drives_it(tmp_path) -> None:
    vendor = tmp_path / "sys/class/drm/card0/device/vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x1002\n")
    no_library = fake_binding(nvmlInit=FakeNvmlError(Code.LIBRARY_NOT_FOUND))
    with pytest.raises(UnusableDeviceError, match="made by AMD") as raised:
        Nvml(no_library, root=tmp_path)
    assert "not supported yet" in raised.value.remedy
    vendor.write_text("0x10de\n")
    with pytest.raises(UnusableDeviceError, match="no working NVIDIA driver"):
        Nvml(no_library, root=tmp_path)


def test_an_unknown_code_is_a_permanent_error_and_never_a_missing_value() -> None:
    assert not is_absent(998)
    assert not is_untold(998)
    assert isinstance(as_error(998, "unknown"), PermanentError)
    assert isinstance(as_error(Code.RESET_REQUIRED, "reset"), TransientError)


def test_the_real_binding_either_opens_or_says_what_is_missing() -> None:
    pytest.importorskip("pynvml")
    if shutil.which("nvidia-smi") is None:
        with pytest.raises(UnusableDeviceError, match="driver"):
            open_nvml()
    else:
        assert open_nvml().driver().version
