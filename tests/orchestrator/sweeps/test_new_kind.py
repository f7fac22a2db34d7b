"""A kind of device is added with one folder and one line, and no other file knows it."""

import json
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("foundation", "models", "device_agents", "analysis", "orchestrator")
REGISTRY = "device_agents/registry.py"
LINE = '        "abacus": "fleetrank.device_agents.abacus.kind:ABACUS",\n'
KIND = '''"""The kind `abacus`: beads on the host's desk."""

from fleetrank.device_agents.contract.kind import HostShare, Kind, Traits
from fleetrank.device_agents.simulated.agent import SimulatedAgent
from fleetrank.foundation.vocabulary import Origin

ABACUS = Kind(
    create_agent=SimulatedAgent,
    traits_of=lambda options: Traits(
        origin=Origin.SIMULATED, share=HostShare.ALONE, needs_quiet=options.get("noise", 0) == 0
    ),
    default_backend=lambda runtime: f"beads-{runtime}",
)
'''


@pytest.fixture
def copy_with_abacus(tmp_path: Path) -> dict[str, str]:
    """A copy of the packages with one more kind; the environment that uses the copy."""
    house = tmp_path / "copy" / "fleetrank"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, house / package, ignore=ignored)
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "orchestrator/public" / name, house / name)
    folder = house / "device_agents/abacus"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""An abacus."""\n')
    (folder / "kind.py").write_text(KIND)
    registry = house / REGISTRY
    head, mark, tail = registry.read_text().partition('        "cpu": ')
    assert mark, "the table of kinds has another form"
    registry.write_text(head + LINE + mark + tail)
    return {"PYTHONPATH": os.pathsep.join([str(house.parent), os.environ.get("PYTHONPATH", "")])}


def test_a_kind_is_one_folder_and_one_line(folder, copy_with_abacus: dict[str, str]) -> None:
    def run(*words: str):
        done = folder.run(*words, env=copy_with_abacus)
        assert done.returncode == 0, done.stderr
        return done

    added = run("devices", "add", "beads", "--kind", "abacus", "--option", "noise=0.0")
    assert Path(added.stdout.strip()).name == "beads.yaml"
    assert "no option" in folder.run(
        "devices", "add", "more", "--kind", "abacus", "--option", "colour=red",
        env=copy_with_abacus,
    ).stderr  # fmt: skip
    folder.write_spec(["m0"], ["beads"])
    (planned,) = json.loads(run("sweep", "plan", "t", "--json").stdout)
    assert "beads-onnx" in planned["platform"]
    run("sweep", "run", "t", "--inline")
    rows = folder.rows()
    assert [(row["status"], row["backend"]) for row in rows] == [("ok", "beads-onnx")] * 2
    assert {row["origin"] for row in rows} == {"simulated"}


def test_without_the_line_the_kind_is_unknown(folder) -> None:
    done = folder.run("devices", "add", "beads", "--kind", "abacus")
    assert done.returncode == 2
    assert "unknown device kind 'abacus'" in done.stderr
