"""Errors of the agents, sorted by what the caller does about them."""

from fleetrank.foundation.errors import FleetError


class AgentError(FleetError):
    """Anything an agent reports."""


class TransientError(AgentError):
    """May succeed when tried again: the device was busy, lost or out of a shared resource."""


class TimedOutError(TransientError):
    """No end within the time limit; what it was doing on the device was abandoned."""


class StoppedError(TransientError):
    """Ended on request of the user, not by anything wrong."""


class UnfitConditionsError(TransientError):
    """The device is too hot, too empty or slowed down to be measured on now."""


class PermanentError(AgentError):
    """Fails the same way every time: a damaged file, an unsupported operator, a wrong option."""


class UnusableDeviceError(PermanentError):
    """The device refuses this host, or is another one: a person has to act, no task is at fault."""


class MissingLibraryError(PermanentError):
    """An optional library is not installed; `remedy` names the extra."""


class CrashedError(PermanentError):
    """A program ended by a signal, or said that it failed and not why."""


class OutOfMemoryError(PermanentError):
    """An allocation failed."""


class KilledError(TransientError):
    """Something else killed the program, such as the system when memory ran low."""


class TooSlowError(PermanentError):
    """A program was still at work at its time limit; another try would be too."""


class BadArtifactError(PermanentError):
    """The runtime refuses the file: damaged, hostile or of another format."""


class LostArtifactError(TransientError):
    """The file is gone or not the one that was meant; a resumed sweep exports it again."""


class UnsupportedError(PermanentError):
    """The device or runtime cannot do what the task asks."""


class BadOutputError(PermanentError):
    """A tool or a device said something that is not an answer to what it was asked."""


class StorageFullError(PermanentError):
    """There is no room left on the device."""
