import errno
import importlib
import pickle  # noqa: TID251 - how Ray carries an error
from pathlib import Path

import pytest

from fleetrank.foundation.errors import BadFileError, FleetError
from fleetrank.orchestrator.reading_errors import file_error

MODULES = (
    "fleetrank.orchestrator.errors",
    "fleetrank.device_agents.errors",
    "fleetrank.models.errors",
    "fleetrank.analysis.errors",
)
ERRORS: list[type[FleetError]] = [
    value
    for module in MODULES
    for value in vars(importlib.import_module(module)).values()
    if isinstance(value, type) and issubclass(value, FleetError) and value.__module__ == module
]


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_survive_pickling(kind: type[FleetError]) -> None:
    error = kind("what happened", "what to do")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (back.message, back.remedy) == ("what happened", "what to do")
    assert str(back) == "what happened (what to do)"


def test_all_four_packages_have_errors() -> None:
    assert {kind.__module__ for kind in ERRORS} == set(MODULES)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOLCK, "x", "/a"), "with locks"), (OSError(errno.EBADF, "x"), "/dev/null"),
        (OSError(errno.EOPNOTSUPP, "x"), "with locks"), (OSError(errno.EMFILE, "x"), "ulimit -n"),
        (OSError("Too many open files (os error 24): /a"), "ulimit -n"),
        (MemoryError(), "ulimit -v"), (RuntimeError("std::bad_alloc"), "ulimit -v"),
        (OSError(errno.ENAMETOOLONG, "x", "/a"), "shorter"),
        (OSError("No space left on device (os error 28)"), "free some space"),
        (UnicodeError("encoding with 'idna' codec failed (label too long)"), "host"),
    ],
)  # fmt: skip
def test_what_the_system_refuses_has_a_remedy(error: Exception, remedy: str) -> None:
    found = file_error(error, Path("/w"))
    assert found is not None
    assert remedy in found.remedy


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), BadFileError("memory", "x")])
def test_a_defect_is_not_blamed_on_the_system(error: Exception) -> None:
    assert file_error(error, Path("/w")) is None
