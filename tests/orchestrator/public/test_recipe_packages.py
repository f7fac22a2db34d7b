"""The packages of `docs/recipes` in a clean environment: each adds what it promises, and measures.

The environment sees the libraries of this one, and of fleetrank only what is installed into it.
"""

import json
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from clean_environment import ROOT, Installed, checkout, pip
from tiny_onnx import save_tiny_onnx

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

RECIPES = ("importer", "kind", "runtime")
SWEEP = """
name: doors
models: [net, tiny]
runtimes: [onnx, perceptron, reference]
devices: [local-cpu, other]
repeats: 2
measure: {max_time_s: 1, min_runs: 20}
"""
SUMMARY = """
SUT name : PySUT
Scenario : SingleStream
Result is : VALID
50.00 percentile latency (ns)   : 1290000
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    base = tmp_path_factory.mktemp("doors")
    (base / "fleetrank").mkdir()
    sources = [checkout(base / "fleetrank")]
    for name in RECIPES:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / "docs/recipes" / name, base / name, ignore=ignored)
        sources.append(base / name)
    folder = base / "environment"
    venv.create(folder, with_pip=False)
    (own,) = folder.glob("lib/python3*/site-packages")
    libraries = {Path(module.__file__ or "").parents[1] for module in (np, pytest)}
    (own / "zz_libraries.pth").write_text("".join(f"{one}\n" for one in libraries))
    pip(
        Path(sys.executable), "--python", str(folder / "bin" / "python"), "install", "-q",
        "--no-deps", "--no-build-isolation", "--no-index", *map(str, sources), cwd=base,
    )  # fmt: skip
    found = Installed(folder=folder, workspace=base / "workspace")
    done = found.python("-m", "fleetrank", "init", str(found.workspace))
    assert done.returncode == 0, done.stderr
    yield found
    shutil.rmtree(base, ignore_errors=True)


def asked(installed: Installed, *words: str) -> str:
    done = installed.fleetrank(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(installed: Installed, columns: str, condition: str) -> list[dict[str, object]]:
    query = f"SELECT DISTINCT {columns} FROM measurements WHERE {condition} ORDER BY ALL"
    return list(json.loads(asked(installed, "query", query, "--json")))


def test_only_the_installed_fleetrank_is_seen(installed: Installed) -> None:
    code = "import fleetrank.foundation as f, fleetrank as o; print(*f.__path__, *o.__path__)"
    for path in installed.python("-P", "-c", code).stdout.split():
        assert Path(path).is_relative_to(installed.folder)


def test_the_doctor_lists_what_the_packages_add(installed: Installed) -> None:
    found = json.loads(installed.fleetrank("doctor", "--json").stdout)
    levels = {one["check"]: (one["level"], one["message"]) for one in found}
    for check, package in (
        ("runtime perceptron", "numpy"),
        ("runtime reference", "numpy"),
        ("kind interpreter", "interpreter"),
        ("importer mlperf", "mlperf"),
    ):
        assert levels[check] == ("ok", f"of package fleetrank-{package} 0.1.0")


def test_a_sweep_measures_by_a_runtime_and_a_kind_of_packages(installed: Installed) -> None:
    place = installed.workspace
    ones = np.ones((8, 4), np.float32)
    np.savez(place / "net.npz", weight_0=ones, bias_0=ones[0], weight_1=ones.T, bias_1=ones[:, 0])
    save_tiny_onnx(place / "tiny.onnx")
    (place / "cards").mkdir(exist_ok=True)
    for entry in ("net.npz", "tiny.onnx"):
        card = f'family = "other"\nsource = "file"\nentry = "../{entry}"\n'
        (place / f"cards/{Path(entry).stem}.toml").write_text(card)
    python = f"python={installed.folder / 'bin/python'}"
    add = ("devices", "add", "other", "--kind", "interpreter", "--option")
    assert "cannot be started" in installed.fleetrank(*add, "python=/no/python").stderr
    assert not (place / "devices/other.yaml").exists()
    asked(installed, *add, python)
    (place / "sweeps/doors.yaml").write_text(SWEEP)
    asked(installed, "sweep", "run", "sweeps/doors.yaml", "--inline")
    columns = (
        "model, runtime, device = 'other' AS other, packages, macs, confinement IS NULL AS open"
    )
    net = {"model": "net", "macs": 64}
    tiny = {"model": "tiny", "macs": 4 * 27 * 256}
    numpy, interpreter = ["fleetrank-numpy 0.1.0"], ["fleetrank-interpreter 0.1.0"]
    ours = {"other": False, "open": False}
    assert rows(installed, columns, "status = 'ok'") == [
        {**net, **ours, "runtime": "perceptron", "packages": numpy},
        {**tiny, **ours, "runtime": "onnx", "packages": None},
        {**tiny, "runtime": "onnx", "other": True, "packages": interpreter, "open": True},
        {**tiny, **ours, "runtime": "reference", "packages": numpy},
    ]
    assert rows(installed, "error_message", "status <> 'ok'") == []
    shown = asked(installed, "report", "show", "latency", "--runtime", "reference", "--json")
    assert {row["model"] for row in json.loads(shown)["rows"]} == {"tiny"}


def test_the_file_of_a_new_format_is_measured_by_its_name(installed: Installed) -> None:
    np.savez(installed.workspace / "odd.npz", weight_0=np.ones((2, 3)), bias_0=np.ones(3))
    asked(installed, "run", "odd.npz", "--repeats", "1", "--max-time", "1")
    found = rows(installed, "runtime, backend, precision, artifact_format", "precision = 'fp64'")
    assert found == [
        {"runtime": "perceptron", "backend": "numpy", "precision": "fp64", "artifact_format": "npz"}
    ]
    (installed.workspace / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    done = installed.fleetrank("run", "bad.npz", "--repeats", "1")
    assert done.returncode not in (0, 1)
    assert "bad.npz is not a .npz file" in done.stdout


def test_an_importer_of_a_package_reads_rows(installed: Installed) -> None:
    folder = installed.workspace / "v5.0/results/box/resnet50/SingleStream/performance/run_1"
    folder.mkdir(parents=True)
    (folder / "mlperf_log_summary.txt").write_text(SUMMARY)
    asked(installed, "results", "import", "--from", "mlperf", "v5.0/results")
    assert rows(installed, "model, latency_p50_ns, packages", "source = 'mlperf'") == [
        {
            "model": "mlperf:resnet50",
            "latency_p50_ns": 1_290_000.0,
            "packages": ["fleetrank-mlperf 0.1.0"],
        }
    ]
