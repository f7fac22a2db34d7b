"""The wheel in a clean environment: `fleetrank[onnx]` measures a file without PyTorch and Ray.

The packages come from pip's cache or from the index that pip is configured for.
"""

import json
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_environment import Installed, checkout, pip
from tiny_onnx import save_tiny_onnx

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

MOST_MB = 550
"""docs/install.md says 490 MB; new versions of libraries grow."""
NEEDED_MB = 1500
"""Of free disk: the wheels, what pip unpacks, and the environment."""
ABSENT = (
    "torch", "torchvision", "timm", "tensorflow", "ray", "jinja2", "fastapi", "adbutils",
    "duckdb", "pyarrow", "onnxscript", "sympy",
)  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    base = tmp_path_factory.mktemp("wheel")
    free_mb = shutil.disk_usage(base).free // 10**6
    if free_mb < NEEDED_MB:
        pytest.skip(f"{base} has {free_mb} MB of free disk; an environment needs {NEEDED_MB} MB")
    source = base / "source"
    source.mkdir()
    checkout(source)
    pip(Path(sys.executable), "wheel", "-q", "--no-deps", "-w", str(base), ".", cwd=source)
    (wheel,) = base.glob("*.whl")
    folder = base / "environment"
    venv.create(folder, with_pip=False)
    pip(
        Path(sys.executable), "--python", str(folder / "bin" / "python"),
        "install", "-q", "--no-compile",
        "-c", str(source / "constraints.txt"), f"fleetrank[onnx] @ {wheel.as_uri()}", cwd=base,
    )  # fmt: skip
    found = Installed(folder=folder, workspace=base / "workspace")
    done = found.python("-m", "fleetrank", "init", str(found.workspace))
    assert done.returncode == 0, done.stderr
    yield found
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def measured(installed: Installed) -> Installed:
    model = save_tiny_onnx(installed.workspace.parent / "tiny.onnx")
    done = installed.fleetrank("run", str(model), "--repeats", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ray" not in done.stdout + done.stderr, "one file is measured without Ray"
    assert "no primer" not in done.stdout + done.stderr
    return installed


def test_an_onnx_file_is_measured_without_torch_and_without_ray(measured: Installed) -> None:
    listed = measured.fleetrank("results", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == 1
    model = str(measured.workspace.parent / "tiny.onnx")
    done = measured.fleetrank("run", model, "--repeats", "5", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["cells"]
    assert row["n_repeats"] == 5
    assert row["latency_low_ms"] <= row["latency_ms"] <= row["latency_high_ms"]
    out = measured.workspace / "rows.csv"
    for words in (("verify",), ("export", "--format", "csv", "--out", str(out))):
        assert measured.fleetrank("results", *words).returncode == 0
    assert out.read_text().count("\n") >= 7


def test_the_api_reads_what_was_measured(measured: Installed) -> None:
    code = "import fleetrank; print(fleetrank.load('workspace/results').collect().height)"
    done = measured.python("-P", "-c", code)
    assert int(done.stdout) >= 2, done.stderr


def test_the_environment_is_small_and_has_only_what_was_asked_for(installed: Installed) -> None:
    code = f"import importlib.util as u; print([n for n in {ABSENT} if u.find_spec(n)])"
    assert installed.python("-P", "-c", code).stdout.strip() == "[]"
    size_mb = sum(
        path.lstat().st_size
        for path in installed.folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ) / 1e6  # fmt: skip
    assert size_mb < MOST_MB


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("query", "SELECT 1"), "analysis"),
        (("report", "build"), "report"),
        (("report", "serve"), "server"),
        (("doctor", "--cluster", "auto"), "cluster"),
        (("models", "export", "resnet18", "--runtime", "onnx"), "torch"),
    ],
)
def test_a_missing_library_names_its_extra(
    arguments: tuple[str, ...], extra: str, measured: Installed
) -> None:
    done = measured.fleetrank(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    named = [word for word in (done.stdout + done.stderr).split("'") if "fleetrank[" in word]
    assert named
    assert all(extra in word for word in named)


def test_the_api_names_the_extra_that_is_missing(measured: Installed) -> None:
    for call, extra in (
        ("report('workspace/results', 'page.html')", "report"),
        ("figure('flops', 'workspace/results')", "report"),
        ("figures()", "report"),
        ("query('workspace/results', 'SELECT 1')", "analysis"),
    ):
        code = (
            f"import fleetrank\ntry: fleetrank.{call}\n"
            "except fleetrank.FleetError as error: print(error.remedy)"
        )
        assert f"fleetrank[{extra}]" in measured.python("-P", "-c", code).stdout
