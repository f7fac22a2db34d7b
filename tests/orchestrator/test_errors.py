import importlib
import pickle  # noqa: TID251 - how Ray carries an error

import pytest

from fleetrank.foundation.errors import FleetError

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
