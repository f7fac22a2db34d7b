"""`devices check --peaks` stores what this host can do; rows with as many threads refer to it."""

from pathlib import Path

import pytest
import yaml

from fleetrank.device_agents.linux.processor_peaks import Peak
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


def test_peaks_are_stored_by_threads_and_measured_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the probe is replaced, which takes a second and has its own tests."""
    found = iter((9.0, 10.0))
    monkeypatch.setattr(
        "fleetrank.orchestrator.cli.devices_command.probe_peak",
        lambda cpus: Peak(threads=len(cpus), gflops=next(found), gbps=3.0),
    )
    path = root / "devices" / f"{local_cpu().name}.yaml"
    for words, gflops in (((), 9.0), (("local-cpu", "--threads", "1"), 10.0)):
        assert peaks(root, *words) == 0
        (one,) = yaml.safe_load(path.read_text())["peaks"]
        assert (one["threads"], one["gflops"]) == (1, gflops)


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
