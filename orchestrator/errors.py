"""Errors of the orchestrator; the command line turns each into its exit code."""

from fleetrank.foundation.errors import FleetError


class OrchestratorError(FleetError):
    """Base of all errors of the orchestrator."""


class UsageError(OrchestratorError):
    """An invalid argument or an invalid file: exit code 2."""


class NothingToDoError(OrchestratorError):
    """A required device or result is missing: exit code 4."""


class HostDiedError(OrchestratorError):
    """The process of a host has ended and Ray does not restart it."""


class RayLostError(OrchestratorError):
    """The process that talks to Ray has ended; everything measured is kept."""


class StoreError(OrchestratorError):
    """The results cannot be written or read: a full disk, a newer schema, a damaged journal."""


class FullDiskError(StoreError):
    """The disk is full; everything written before is kept."""


class MovedFolderError(StoreError):
    """The results folder was moved or removed under a running driver."""


class NewerSchemaError(StoreError):
    """A newer fleetrank wrote the results; they are neither read nor changed."""
