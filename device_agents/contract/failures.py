"""Turns exceptions inside the worker into typed failures; `linux.worker_client` judges its end."""

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from fleetrank.device_agents.contract.measurement import Failure, Wait
from fleetrank.device_agents.errors import (
    AwayError,
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    LostArtifactError,
    MissingLibraryError,
    NotFitError,
    OutOfMemoryError,
    StoppedError,
    StorageFullError,
    TimedOutError,
    TooSlowError,
    TransientError,
    UnfitConditionsError,
    UnusableDeviceError,
    WrongOutputError,
)
from fleetrank.foundation.errors import FleetError, is_out_of_memory
from fleetrank.foundation.files import NoRoomError, is_no_room, storage_error
from fleetrank.foundation.vocabulary import ErrorKind

TAIL_CHARACTERS = 2_000
"""Most characters of the worker's standard error that a stored message keeps."""
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
DAMAGED_REMEDY = "the library is damaged there: `pip install --force-reinstall` it on that host"
MEMORY_REMEDY = "raise the memory limit of the sweep, or remove the model from the sweep"


def failure_from_error(error: Exception, stage: str | None) -> Failure:
    """Describes an exception raised inside the worker, by its class."""
    kind, remedy = _kind_of(error)
    return Failure(
        kind=kind,
        message=error.message if isinstance(error, FleetError) else _describe(error),
        remedy=remedy,
        is_transient=_is_transient(error),
        stage=stage,
        wait=_wait_of(error),
    )


def _wait_of(error: Exception) -> Wait | None:
    if not isinstance(error, NotFitError):
        return None
    return Wait(ask_again_s=error.ask_again_s, limit_s=error.limit_s)


def waited_in_vain(failure: Failure, waited_s: float) -> Failure:
    """The end of an attempt whose device was not fit within the limit; without `wait`."""
    message = f"not fit after {waited_s:.0f} s of waiting: {failure.message}"
    return replace(failure, message=message, wait=None)


def interrupted(message: str = "the measurement was stopped on request") -> Failure:
    """Describes a task that the user stopped; nothing failed."""
    return Failure(
        kind=ErrorKind.INTERRUPTED,
        message=message,
        remedy="resume the sweep",
        is_transient=True,
    )


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


_KINDS: tuple[tuple[type[FleetError], ErrorKind], ...] = (
    (CrashedError, ErrorKind.CRASHED),
    (KilledError, ErrorKind.CRASHED),
    (OutOfMemoryError, ErrorKind.OUT_OF_MEMORY),
    (MissingLibraryError, ErrorKind.MISSING_LIBRARY),
    (BadArtifactError, ErrorKind.BAD_ARTIFACT),
    (LostArtifactError, ErrorKind.BAD_ARTIFACT),
    (BadOutputError, ErrorKind.BAD_OUTPUT),
    (WrongOutputError, ErrorKind.WRONG_OUTPUT),
    (StorageFullError, ErrorKind.DISK_FULL),
    (TimedOutError, ErrorKind.TIMED_OUT),
    (TooSlowError, ErrorKind.TIMED_OUT),
    (StoppedError, ErrorKind.INTERRUPTED),
    (AwayError, ErrorKind.DEVICE_LOST),
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
    if is_out_of_memory(error):
        return ErrorKind.OUT_OF_MEMORY, MEMORY_REMEDY
    if isinstance(error, ImportError) or isinstance(getattr(error, "obj", None), ModuleType):
        return ErrorKind.MISSING_LIBRARY, DAMAGED_REMEDY
    if says_device_lost(str(error)):
        return ErrorKind.DEVICE_LOST, LOST_REMEDY
    if isinstance(error, OSError) and is_no_room(error):
        return ErrorKind.DISK_FULL, storage_error(Path(error.filename or "a file"), error).remedy
    return ErrorKind.INTERNAL, "report this with what the command prints with `debug=true`"


def _is_transient(error: Exception) -> bool:
    if isinstance(error, FleetError):
        return isinstance(error, TransientError)
    return not is_out_of_memory(error) and says_device_lost(str(error))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:TAIL_CHARACTERS]
