"""Turns exceptions inside the worker, and the ways a worker can end, into typed failures."""

import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.protocol import STAGE_MARK
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    LostArtifactError,
    MissingLibraryError,
    OutOfMemoryError,
    StoppedError,
    StorageFullError,
    TimedOutError,
    TooSlowError,
    TransientError,
    UnfitConditionsError,
    UnusableDeviceError,
)
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.files import NoRoomError, is_no_room, storage_error
from fleetrank.foundation.vocabulary import ErrorKind

TAIL_CHARACTERS = 2_000
"""Most characters of the worker's standard error that a stored message keeps."""

_STAGE = re.compile(rf"^{STAGE_MARK} (\w+)\n?", re.MULTILINE | re.ASCII)
_MEMORY_SIGNS = re.compile(
    r"bad_alloc|MemoryError|can't allocate memory|Cannot allocate memory|"
    r"Failed to allocate memory|std::length_error|out of memory|"
    r"failed to map segment from shared object(?!: Operation not permitted)",
    re.IGNORECASE,
)
"""How C and C++ libraries, Python, PyTorch and ONNX Runtime report a failed allocation. The loader
reports it for a library for which memory is short, or which may not be executed."""

_LOST_SIGNS = re.compile(
    r"GPU is lost|fallen off the bus|uncorrectable (NVLink|ECC) error|"
    r"no CUDA-capable device is detected|CUDA-capable device\(s\) is/are busy or unavailable|"
    r"CUDA error: (unknown error|hardware stack error|all CUDA-capable devices are busy)|"
    r"CUDA_ERROR_(DEVICE_UNAVAILABLE|ECC_UNCORRECTABLE|SYSTEM_NOT_READY)|cudaErrorSystemNotReady|"
    r"Error 802: system not yet initialized|NVML_ERROR_GPU_IS_LOST|"
    r"cudaErrorDevicesUnavailable|cudaErrorECCUncorrectable",
    re.IGNORECASE,
)
"""How the CUDA runtime reports a lost or defective GPU. Source: its table of error strings."""

LOST_REMEDY = "look for Xid messages in `dmesg`; a lost GPU returns after a reset or a reboot"
_MEMORY_REMEDY = "raise the memory limit of the sweep, or remove the model from the sweep"


class End(StrEnum):
    """What ended the worker."""

    ITSELF = "itself"
    TIME_LIMIT = "time_limit"
    STOP = "stop"
    TOO_MUCH_OUTPUT = "too_much_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnd:
    """What is known about a worker after its end.

    Attributes:
        exit_code: negative for a signal.
        stdout: all standard output; it is the result line if the worker succeeded.
        stderr: the end of its standard error.
        oom_kills: processes that the kernel killed for lack of memory in that time; `None` if
            unknown.
    """

    end: End
    exit_code: int
    stdout: str
    stderr: str
    oom_kills: int | None
    timeout_s: float


def failure_from_error(error: Exception, stage: str | None) -> Failure:
    """Describes an exception raised inside the worker, by its class."""
    kind, remedy = _kind_of(error)
    return Failure(
        kind=kind,
        message=error.message if isinstance(error, FleetError) else _describe(error),
        remedy=remedy,
        is_transient=_is_transient(error),
        stage=stage,
    )


def failure_from_end(end: WorkerEnd) -> Failure:
    """Describes a worker that ended without a result."""
    stage = last_stage(end.stderr)
    kind, message, remedy, is_transient = _judge_end(end, f" in stage {stage}" if stage else "")
    tail = _STAGE.sub("", end.stderr).strip()[-TAIL_CHARACTERS:]
    return Failure(
        kind=kind,
        message=f"{message}; last output: {tail}" if tail else message,
        remedy=remedy,
        is_transient=is_transient,
        stage=stage,
        exit_code=end.exit_code,
    )


def bad_output(end: WorkerEnd, why: str) -> Failure:
    """Describes a worker that ended normally but whose output is not its result."""
    return Failure(
        kind=ErrorKind.BAD_OUTPUT,
        message=f"the worker's output is not a result: {why}",
        remedy="check that worker and agent are the same version of fleetrank",
        is_transient=False,
        stage=last_stage(end.stderr),
        exit_code=end.exit_code,
    )


def interrupted(message: str = "the measurement was stopped on request") -> Failure:
    """Describes a task that the user stopped; nothing failed."""
    return Failure(
        kind=ErrorKind.INTERRUPTED,
        message=message,
        remedy="resume the sweep",
        is_transient=True,
    )


def is_memory_error(error: BaseException) -> bool:
    """Whether a library's exception means that an allocation failed."""
    return isinstance(error, MemoryError) or says_out_of_memory(str(error))


def says_out_of_memory(text: str) -> bool:
    """Whether a program's output means that an allocation failed."""
    return _MEMORY_SIGNS.search(text) is not None


def says_device_lost(text: str) -> bool:
    """Whether a runtime's text means that its device is lost."""
    return _LOST_SIGNS.search(text) is not None


def device_lost(text: str, stage: str | None) -> Failure:
    """Describes a device that was lost in the middle of a repeat."""
    return Failure(
        kind=ErrorKind.DEVICE_LOST,
        message=f"the device was lost: {text}"[:TAIL_CHARACTERS],
        remedy=LOST_REMEDY,
        is_transient=True,
        stage=stage,
    )


def last_stage(stderr: str) -> str | None:
    """The last stage that the worker reported before it ended."""
    found = _STAGE.findall(stderr)
    return found[-1] if found else None


_KINDS: tuple[tuple[type[FleetError], ErrorKind], ...] = (
    (CrashedError, ErrorKind.CRASHED),
    (KilledError, ErrorKind.CRASHED),
    (OutOfMemoryError, ErrorKind.OUT_OF_MEMORY),
    (MissingLibraryError, ErrorKind.MISSING_LIBRARY),
    (BadArtifactError, ErrorKind.BAD_ARTIFACT),
    (LostArtifactError, ErrorKind.BAD_ARTIFACT),
    (BadOutputError, ErrorKind.BAD_OUTPUT),
    (StorageFullError, ErrorKind.DISK_FULL),
    (TimedOutError, ErrorKind.TIMED_OUT),
    (TooSlowError, ErrorKind.TIMED_OUT),
    (StoppedError, ErrorKind.INTERRUPTED),
    (UnfitConditionsError, ErrorKind.UNFIT_CONDITIONS),
    (NoRoomError, ErrorKind.DISK_FULL),
    (TransientError, ErrorKind.DEVICE_LOST),
    (UnusableDeviceError, ErrorKind.DEVICE_LOST),
    (FleetError, ErrorKind.UNSUPPORTED),
)
"""The first class that matches decides the kind."""


def _kind_of(error: Exception) -> tuple[ErrorKind, str]:
    if isinstance(error, FleetError):
        kind = next(kind for cls, kind in _KINDS if isinstance(error, cls))
        return kind, error.remedy
    if is_memory_error(error):
        return ErrorKind.OUT_OF_MEMORY, _MEMORY_REMEDY
    if says_device_lost(str(error)):
        return ErrorKind.DEVICE_LOST, LOST_REMEDY
    if isinstance(error, OSError) and is_no_room(error):
        return ErrorKind.DISK_FULL, storage_error(Path(error.filename or "a file"), error).remedy
    return ErrorKind.INTERNAL, "report this with the output of the command under --debug"


def _judge_end(end: WorkerEnd, where: str) -> tuple[ErrorKind, str, str, bool]:
    """Returns kind, message, remedy, and whether a retry makes sense."""
    if end.end is End.STOP:
        return ErrorKind.INTERRUPTED, f"stopped on request{where}", "resume the sweep", True
    if end.end is End.TIME_LIMIT:
        remedy = "raise timeout_s of the sweep, or remove the model from the sweep"
        return ErrorKind.TIMED_OUT, f"no result after {end.timeout_s:g} s{where}", remedy, False
    if end.end is End.TOO_MUCH_OUTPUT:
        remedy = "look for a library that prints without limit"
        return ErrorKind.BAD_OUTPUT, f"the worker wrote too much{where}", remedy, False
    if end.exit_code == 0:
        remedy = "check that worker and agent are the same version of fleetrank"
        return ErrorKind.BAD_OUTPUT, f"the worker ended without a result{where}", remedy, False
    return _judge_crash(end, where)


def _judge_crash(end: WorkerEnd, where: str) -> tuple[ErrorKind, str, str, bool]:
    if says_device_lost(end.stderr):
        return ErrorKind.DEVICE_LOST, f"the device was lost{where}", LOST_REMEDY, True
    if says_out_of_memory(end.stderr):
        return ErrorKind.OUT_OF_MEMORY, f"an allocation failed{where}", _MEMORY_REMEDY, False
    if end.exit_code != -signal.SIGKILL:
        remedy = "the runtime or the file may be defective; try another version of either"
        return ErrorKind.CRASHED, f"the worker ended with {_exit_name(end)}{where}", remedy, False
    if end.oom_kills:
        remedy = "free memory on this host, or set a memory limit for the sweep"
        return ErrorKind.OUT_OF_MEMORY, f"killed for lack of memory{where}", remedy, True
    remedy = "find out which program kills processes on this host; the repeat can be retried"
    return ErrorKind.CRASHED, f"the worker was killed by SIGKILL{where}", remedy, True


def _exit_name(end: WorkerEnd) -> str:
    if end.exit_code >= 0:
        return f"exit code {end.exit_code}"
    try:
        return signal.Signals(-end.exit_code).name
    except ValueError:
        return f"signal {-end.exit_code}"


def _is_transient(error: Exception) -> bool:
    if isinstance(error, FleetError):
        return isinstance(error, TransientError)
    return not is_memory_error(error) and says_device_lost(str(error))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:TAIL_CHARACTERS]
