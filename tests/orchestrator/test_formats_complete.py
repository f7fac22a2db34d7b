"""What a new runtime or format needs in more than one place, so that no place is forgotten."""

import tomllib
from pathlib import Path

import pytest

from fleetrank.device_agents.runtimes.runner import RUNNERS, create_runner
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Format, Runtime
from fleetrank.models.cards.card import FORMATS_OF_SUFFIX
from fleetrank.models.export.exporters import EXPORTERS
from fleetrank.orchestrator.doctor_software import LIBRARIES

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


def test_every_runtime_has_a_runner_and_a_format() -> None:
    assert set(RUNNERS) == set(Runtime) == set(RUNTIME_OF_FORMAT.values())


def test_every_format_has_an_exporter_and_a_suffix() -> None:
    assert set(EXPORTERS) == set(Format) == set(RUNTIME_OF_FORMAT)
    assert set(FORMATS_OF_SUFFIX.values()) == set(Format)


@pytest.mark.parametrize("runtime", Runtime)
def test_a_runner_names_its_backends_without_its_library(runtime: Runtime) -> None:
    assert create_runner(runtime).capability.backends


@pytest.mark.parametrize("runtime", Runtime)
def test_the_doctor_looks_for_the_runtime(runtime: Runtime) -> None:
    (found,) = [library for library in LIBRARIES if library.check == f"runtime {runtime}"]
    assert found.extra in EXTRAS


@pytest.mark.parametrize("format_", Format)
def test_the_doctor_looks_for_the_exporter_and_its_extra_exists(format_: Format) -> None:
    exporter = EXPORTERS[format_]
    assert set(exporter.extra.split(",")) <= set(EXTRAS)
    assert {library.distribution for library in LIBRARIES} & set(exporter.libraries)
