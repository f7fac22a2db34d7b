"""Errors of the orchestrator; the command line turns each into its exit code."""

from fleetrank.foundation.errors import FleetError


class OrchestratorError(FleetError):
    """Anything the orchestrator reports."""


class UsageError(OrchestratorError):
    """A bad argument or a bad file: exit code 2."""


class NothingToDoError(OrchestratorError):
    """No device or no result to do it with: exit code 4."""


class StoreError(OrchestratorError):
    """The results cannot be written or read: a full disk, a newer schema, a damaged journal."""


class FullDiskError(StoreError):
    """There is no room for a file; what was written before is kept."""


class MovedFolderError(StoreError):
    """The results folder was moved or removed under a running driver."""


class NewerSchemaError(StoreError):
    """The results come from a newer fleetrank; nothing of them is read or changed."""
