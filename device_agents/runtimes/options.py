"""Reads runtime options by name and type, and names the extra of a missing library."""

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError


def boolean_option(execution: Execution, name: str, *, default: bool) -> bool:
    """The option's value, or `default` if it is not given.

    Raises:
        UnsupportedError: the value is not a boolean.
    """
    value = dict(execution.options).get(name, default)
    if not isinstance(value, bool):
        raise UnsupportedError(f"option {name} is {value!r}", f"set {name} to true or false")
    return value


def missing_library(library: str, extra: str, error: ImportError) -> MissingLibraryError:
    """The error for a runtime that is not installed, or whose library cannot be loaded."""
    return MissingLibraryError(
        f"{library} cannot be imported: {error}", f"pip install 'fleetrank[{extra}]'"
    )
