"""What a plan says of cores of several kinds: of a phone, and of a laptop."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.device_agents.hosts.facts import read_host_facts
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    Registration,
    save_device,
    update_device,
)
from fleetrank.orchestrator.workspace.workspace import Workspace


def test_a_plan_shows_cpus_where_cells_differ_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.init(tmp_path / "w")
    registration = Registration(clusters=((7,), (4, 5, 6), (0, 1, 2, 3)), small=(0, 1, 2, 3))
    options = {"serial": "1", "benchmark_model": "0" * 64}
    save_device(
        workspace,
        DeviceFile(name="phone", kind="android", options=options, registration=registration),
    )
    words = ["sweep", "plan", "t", "--workspace", str(workspace.root)]
    spec = "{{name: t, models: [resnet18], runtimes: [tflite], devices: [phone], threads: {}}}\n"
    (workspace.sweeps / "t.yaml").write_text(spec.format([1, 2, 4, 8]))
    assert run([*words, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["cpus"] for cell in cells] == ["7", "4-6", "4-7", None]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert has(said, "phone", "1 thread on 7", "2 threads on 4-6", "4 threads on 4-7", "unlike")
    (workspace.sweeps / "t.yaml").write_text(spec.format([2, 3]))
    assert run(words) == 0
    assert "unlike" not in capsys.readouterr().out
    # Of all cores that are not small, four are of another kind than the first four.
    found = Registration(clusters=((4, 5, 6, 7), (0, 1, 2, 3)))
    phone = DeviceFile(name="phone", kind="android", options=options, registration=found)
    update_device(workspace, phone)
    (workspace.sweeps / "t.yaml").write_text(spec.format([4, 8]))
    assert run(words) == 0
    assert has(capsys.readouterr().out, "4 threads on 4-7", "8 threads on 0-7", "unlike")
    (workspace.sweeps / "t.yaml").write_text(spec.format([4]))
    assert run(words) == 0
    assert "cpus" not in capsys.readouterr().out


def test_a_plan_marks_threads_on_the_small_cores_of_a_laptop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(read_host_facts(), one_per_core=(0, 2, 4, 5), kinds=((0, 1, 2, 3), (4, 5)))
    monkeypatch.setattr("fleetrank.orchestrator.sweep.fleet.read_host_facts", lambda: here)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    workspace = Workspace.init(tmp_path / "w")
    words = ["sweep", "plan", "t", "--workspace", str(workspace.root)]
    spec = "{{name: t, models: [resnet18], runtimes: [onnx], threads: {}}}\n"
    (workspace.sweeps / "t.yaml").write_text(spec.format([1, 2, 4]))
    assert run(words) == 0
    assert has(capsys.readouterr().out, "2 threads on 0,2", "4 threads on 0,2,4-5", "unlike")
    (workspace.sweeps / "t.yaml").write_text(spec.format([1, 2]))
    assert run(words) == 0
    assert "unlike" not in capsys.readouterr().out
