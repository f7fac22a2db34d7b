from pathlib import Path

import pytest

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.workspace import Workspace, default_root


def test_a_workspace_is_found_from_a_folder_below_it(tmp_path: Path) -> None:
    workspace = Workspace.init(tmp_path / "w")
    below = workspace.sweeps / "deep"
    below.mkdir()
    assert Workspace.find(below) == workspace
    assert Workspace.at(tmp_path / "w") == workspace


def test_the_current_folder_becomes_a_workspace(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    assert Workspace.find() == Workspace(tmp_path)
    assert run(["init"]) == 2
    assert f"{tmp_path} is already a workspace" in capsys.readouterr().err


def test_outside_a_workspace_the_remedy_is_init(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Workspace.find(tmp_path)
    assert "fleetrank init" in caught.value.remedy
    with pytest.raises(UsageError) as caught:
        Workspace.at(tmp_path / "none")
    assert "fleetrank init" in caught.value.remedy


def test_what_was_measured_outside_a_workspace_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    default = Workspace.init(default_root())
    assert default.root == tmp_path / "data" / "fleetrank"
    with pytest.raises(UsageError) as caught:
        Workspace.find(tmp_path)
    assert str(default.root) in caught.value.remedy


def test_places_of_a_workspace_lie_in_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    places = (
        workspace.sweeps,
        workspace.devices,
        workspace.cards,
        workspace.artifacts,
        workspace.results,
    )
    assert len(set(places)) == 5
    assert all(place.parent == tmp_path for place in places)
