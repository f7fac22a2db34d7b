"""The wheel in a clean environment: `fleetrank[onnx]` measures a file without PyTorch and Ray.

The packages come from pip's cache or from the index that pip is configured for.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

ROOT = Path(__file__).parents[3]
SOURCES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")
MOST_MB = 400
"""docs/install.md says 350 MB; new versions of libraries grow."""
NEEDED_MB = 1500
"""Of free disk: the wheels, what pip unpacks, and the environment."""
OFFLINE = ("Failed to establish a new connection", "Temporary failure in name resolution")
ABSENT = (
    "torch", "torchvision", "timm", "tensorflow", "ray", "jinja2", "fastapi", "adbutils", "scipy",
    "duckdb", "pyarrow", "onnxscript", "sympy",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel, and a workspace beside it."""

    folder: Path
    workspace: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(self.folder / "bin" / "python", *arguments, cwd=self.workspace.parent)

    def fleetrank(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(self.folder / "bin" / "fleetrank", *arguments, cwd=self.workspace)


def _run(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of this checkout: neither its folders nor a file of its modules.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [program, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def _pip(python: Path, *arguments: str, cwd: Path) -> None:
    done = _run(python, "-m", "pip", *arguments, cwd=cwd)
    if any(sign in done.stderr for sign in OFFLINE):
        pytest.skip("pip reaches no index")
    assert done.returncode == 0, done.stderr


def _checkout(folder: Path) -> Path:
    """A copy of what a wheel is built from, because a build writes beside it."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    base = tmp_path_factory.mktemp("wheel")
    free_mb = shutil.disk_usage(base).free // 10**6
    if free_mb < NEEDED_MB:
        pytest.skip(f"{base} has {free_mb} MB of free disk; an environment needs {NEEDED_MB} MB")
    source = base / "source"
    source.mkdir()
    _checkout(source)
    _pip(Path(sys.executable), "wheel", "-q", "--no-deps", "-w", str(base), ".", cwd=source)
    (wheel,) = base.glob("*.whl")
    folder = base / "environment"
    venv.create(folder, with_pip=False)
    _pip(
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
        (("report", "show", "pairs"), "analysis"),
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
        ("table('pairs', 'workspace/results')", "analysis"),
        ("query('workspace/results', 'SELECT 1')", "analysis"),
    ):
        code = (
            f"import fleetrank\ntry: fleetrank.{call}\n"
            "except fleetrank.FleetError as error: print(error.remedy)"
        )
        assert f"fleetrank[{extra}]" in measured.python("-P", "-c", code).stdout
