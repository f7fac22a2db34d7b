"""NVML without a GPU: a library of values, and a stand-in for its Python binding."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

from fleetrank.device_agents.cuda.nvml_library import (
    Driver,
    Found,
    Gpu,
    GpuProcess,
    GpuReading,
    Hardware,
)
from fleetrank.device_agents.errors import TransientError

H100 = Gpu(uuid="GPU-11111111-aaaa", name="NVIDIA H100 80GB HBM3", index=0)
A100 = Gpu(uuid="GPU-22222222-bbbb", name="NVIDIA A100-SXM4-40GB", index=1)
DIVIDED = replace(A100, is_divided=True)
SLICE = Gpu(
    uuid="MIG-33333333-cccc", name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", index=1,
    parent_uuid=A100.uuid,
)  # fmt: skip
HARDWARE = Hardware(
    capability=(9, 0), cuda_cores=16896, memory_bytes=85_520_809_984, sm_clock_max_mhz=1980,
    memory_clock_max_mhz=2619, power_limit_mw=700_000, has_ecc=True, pcie=(5, 16), nvlinks=18,
)  # fmt: skip
READING = GpuReading(
    sm_clock_mhz=1755, memory_clock_mhz=2619, temp_c=41, power_mw=120_500, event_reasons=0,
    throttled_ns=7,
)  # fmt: skip


@dataclass
class FakeGpuLibrary:
    """A `GpuLibrary` whose energy rises by 1 J at every look."""

    found: Found = field(default_factory=lambda: Found(gpus=(H100,)))
    reading: GpuReading = READING
    running: tuple[GpuProcess, ...] | None = ()
    has_counter: bool = True
    is_allowed: bool = True
    is_lost: bool = False
    calls: list[str] = field(default_factory=list)
    _energy_mj: int = 0

    def driver(self) -> Driver:
        return Driver(version="580.159.04", cuda=(13, 0))

    def find(self) -> Found:
        return Found(gpus=(), n_lost=1) if self.is_lost else self.found

    def hardware(self, gpu: Gpu) -> Hardware:
        return HARDWARE

    def read(self, gpu: Gpu) -> GpuReading:
        if self.is_lost:
            raise TransientError("the GPU does not answer any more", "reboot")
        return self.reading

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...] | None:
        return self.running

    def energy_mj(self, gpu: Gpu) -> int | None:
        self._energy_mj += 1000
        return self._energy_mj if self.has_counter else None

    def power_mw(self, gpu: Gpu) -> int | None:
        return self.reading.power_mw

    def lock_clocks(self, gpu: Gpu, mhz: int) -> bool:
        self.calls.append(f"lock {mhz}")
        return self.is_allowed

    def unlock_clocks(self, gpu: Gpu) -> bool:
        self.calls.append("unlock")
        return True


MISSING = object()
"""A function that an older binding lacks."""


class FakeNvmlError(Exception):
    """As the binding's own: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def fake_binding(**functions: object) -> ModuleType:
    """The binding of an H100 as driver 580 answers, but for the functions given.

    Each is an answer, a function that makes one, an exception to raise, or `MISSING`.
    """
    answers: dict[str, object] = {
        "nvmlInit": None,
        "nvmlSystemGetDriverVersion": "580.159.04",
        "nvmlSystemGetCudaDriverVersion_v2": 13000,
        "nvmlSystemGetProcessName": "/usr/bin/python3",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetHandleByUUID": "handle",
        "nvmlDeviceGetUUID": H100.uuid,
        "nvmlDeviceGetName": H100.name,
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=HARDWARE.memory_bytes),
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetMaxClockInfo": lambda _handle, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetNvLinkState": 1,
        "nvmlDeviceGetClockInfo": lambda _handle, kind: {1: 1755, 2: 2619}[kind],
        "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetPowerUsage": 120_500,
        "nvmlDeviceGetTotalEnergyConsumption": 987_654_321,
        "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetViolationStatus": lambda _handle, policy: SimpleNamespace(
            violationTime=[3, 4][policy]
        ),
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceSetGpuLockedClocks": FakeNvmlError(4),
        "nvmlDeviceResetGpuLockedClocks": FakeNvmlError(4),
    }
    binding = ModuleType("pynvml")
    binding.NVMLError = FakeNvmlError  # type: ignore[attr-defined]
    for name, answer in (answers | functions).items():
        if name not in functions or answer is not MISSING:
            setattr(binding, name, _function(answer))
    return binding


def _function(answer: object) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments) if callable(answer) else answer

    return call
