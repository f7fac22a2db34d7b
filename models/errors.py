"""Errors about models and files, grouped by how the caller handles them."""

from fleetrank.foundation.errors import FleetError


class ModelError(FleetError):
    """Base of all errors in `models`."""


class CardError(ModelError):
    """A model card is invalid or names something that does not exist; the user must fix it."""


class ExportError(ModelError):
    """A model could not be built or exported; the reason is stored and the sweep continues."""


class LibraryError(ExportError):
    """A library that the export uses is not installed; the remedy names the extra."""


class UntrustedError(ModelError):
    """Using the file would execute model-supplied code; the user has to add `--trust`."""
