"""Errors about models and files, sorted by what the caller does about them."""


class ModelError(Exception):
    """Anything `models` reports; `message` says what happened and where, `remedy` what to do.

    Both go to `Exception` by position, so that the error survives pickling between processes.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class CardError(ModelError):
    """A model card names something that does not exist or breaks a rule; the user mends it."""


class ExportError(ModelError):
    """A model could not be built or exported; stored with its reason, and the sweep goes on."""


class UntrustedError(ModelError):
    """Running the file would run somebody's code; the user has to say `--trust`."""
