"""`devices check --peaks` stores what this host can do; rows with as many threads refer to it."""

from pathlib import Path

import pytest
import yaml

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.identity import DevicePlace
from fleetrank.orchestrator.workspace.device_registry import local_cpu

SIMULATED = "name: sim\nkind: simulated\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("devices", "cards", "sweeps"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "devices" / "sim.yaml").write_text(SIMULATED)
    return tmp_path


def peaks(root: Path, *words: str) -> int:
    return run(["devices", "check", *words, "--peaks", "--workspace", str(root)])


def test_peaks_are_stored_by_threads_and_measured_again(root: Path) -> None:
    assert peaks(root) == 0
    path = root / "devices" / f"{local_cpu().name}.yaml"
    (first,) = yaml.safe_load(path.read_text())["peaks"]
    assert first["threads"] == 1
    assert first["gflops"] > 0
    assert peaks(root, "local-cpu", "--threads", "1") == 0
    assert len(yaml.safe_load(path.read_text())["peaks"]) == 1


def test_other_devices_and_too_many_threads_are_refused(root: Path, capsys) -> None:
    assert peaks(root, "sim") == 2
    assert "simulated" in capsys.readouterr().err
    assert peaks(root, "--threads", "60000") == 2
    assert "at most" in capsys.readouterr().err


def test_a_row_has_the_peaks_of_its_number_of_threads(translate) -> None:
    for peaks, wanted in (
        ({}, (None, None)),
        ({2: (80.0, 20.0)}, (80.0, 20.0)),
        ({1: (80.0, 20.0)}, (None, None)),
    ):
        row = translate(place=DevicePlace(device="d", host="h", needs_quiet=True, peaks=peaks))
        assert (row["peak_gflops"], row["peak_gbps"]) == wanted
