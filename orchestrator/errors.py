"""Errors of the orchestrator; the command line turns each into its exit code."""


class OrchestratorError(Exception):
    """Anything the orchestrator reports; `message` says what happened, `remedy` what to do.

    Both go to `Exception` by position, so that the error survives pickling through Ray.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class UsageError(OrchestratorError):
    """A bad argument or a bad file: exit code 2."""


class NothingToDoError(OrchestratorError):
    """No device or no result to do it with: exit code 4."""


class StoreError(OrchestratorError):
    """The results cannot be written or read: a full disk, a newer schema, a damaged journal."""


class FullDiskError(StoreError):
    """There is no room for a file; what was written before is kept."""


class NewerSchemaError(StoreError):
    """The results come from a newer fleetrank; nothing of them is read or changed."""
