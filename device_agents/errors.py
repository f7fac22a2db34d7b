"""Errors of the agents, grouped by what the caller does about them."""

from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import LONGEST_WAIT_S


class AgentError(FleetError):
    """Base class of all errors from an agent."""


class TransientError(AgentError):
    """A retry may succeed: the device was busy, lost or out of a shared resource."""


class TimedOutError(TransientError):
    """The time limit passed; the work on the device was abandoned."""


class StoppedError(TransientError):
    """The user stopped it; nothing failed."""


class DamagedFileError(TransientError):
    """A file did not arrive as it was sent, or is not here any more."""


class UnfitConditionsError(TransientError):
    """The device is now too hot, too low on battery or too slow to be measured."""


class NotFitError(UnfitConditionsError):
    """The device is not fit yet and tried nothing; the caller waits, so that no other device does.

    Attributes:
        ask_again_s: seconds until the device may be asked again.
        limit_s: the longest time of asking, in seconds; after it the attempt has failed. Source of
            the default: twice the pause of the MLPerf mobile app (its issue 390).
    """

    def __init__(
        self, message: str, remedy: str, ask_again_s: float = 10.0, limit_s: float = 600.0
    ) -> None:
        super().__init__(message, remedy)
        # By position too, so that it survives pickling between processes.
        self.args = (message, remedy, ask_again_s, limit_s)
        self.ask_again_s = ask_again_s
        self.limit_s = limit_s


HOST_PATIENCE_S = 2.5
"""A task that waits longer for its host says so, and is sent again: the user sees the wait.

It queues for the lease most of the time, so two sweeps take turns. Below the time after which
dispatch takes a task that was sent again as running."""


def host_in_use(used_by: str) -> NotFitError:
    """The error of a device whose host another process uses; the same task is sent again."""
    return NotFitError(
        f"the host is used by {used_by or 'another process'}; wait until it has ended, or stop it",
        "wait until it has ended, or stop it",
        ask_again_s=0.0,
        limit_s=LONGEST_WAIT_S,
    )


class AwayError(NotFitError):
    """The device does not answer, or starts: it may come back within the limit."""


class PermanentError(AgentError):
    """Every retry fails the same way: a damaged file, an unsupported operator, a wrong option."""


class UnusableDeviceError(PermanentError):
    """The device rejects this host, or is another device. A person has to act; the task is fine."""


class MissingLibraryError(PermanentError):
    """An optional library is not installed; `remedy` names the extra."""


class CrashedError(PermanentError):
    """A signal ended a program, or it failed without a reason."""


class OutOfMemoryError(PermanentError):
    """An allocation failed."""


class KilledError(TransientError):
    """Another program killed it, such as the system when memory was low."""


class TooSlowError(PermanentError):
    """A program was still running at its time limit; a retry would have the same result."""


class BadArtifactError(PermanentError):
    """The runtime rejects the file: damaged, hostile or of another format."""


class LostArtifactError(TransientError):
    """The file is missing or is another file; a resumed sweep exports it again."""


class UnsupportedError(PermanentError):
    """The device or runtime does not support the task."""


class BadOutputError(PermanentError):
    """The output of a tool or a device is not a valid answer."""


class WrongOutputError(PermanentError):
    """On this device the file computes something else than its network."""


class StorageFullError(PermanentError):
    """The device has not enough free space."""


def missing_library(library: str, extra: str, error: ImportError) -> MissingLibraryError:
    """The error for a runtime that is not installed, or whose library cannot be loaded."""
    return MissingLibraryError(
        f"{library} cannot be imported: {error}", f"pip install 'fleetrank[{extra}]'"
    )
