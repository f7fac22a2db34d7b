"""Errors about models and files, sorted by what the caller does about them."""

from fleetrank.foundation.errors import FleetError


class ModelError(FleetError):
    """Anything `models` reports."""


class CardError(ModelError):
    """A model card names something that does not exist or breaks a rule; the user mends it."""


class ExportError(ModelError):
    """A model could not be built or exported; stored with its reason, and the sweep goes on."""


class UntrustedError(ModelError):
    """Running the file would run somebody's code; the user has to say `--trust`."""
