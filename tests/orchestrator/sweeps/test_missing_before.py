"""What this host lacks for a sweep is said before the sweep is stored."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx
from wording import has

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.runtimes import runner
from fleetrank.foundation.errors import FleetError
from fleetrank.models.errors import ExportError, LibraryError, UntrustedError
from fleetrank.models.export import exporters
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

ENTRY_POINT = 'family = "mobile_cnn"\nsource = "entry_point"\nentry = "my_nets:make"\n'
NETWORK = 'family = "mobile_cnn"\nsource = "timm"\nentry = "resnet18"\n'


def _refused(folder, kind: type[FleetError]) -> FleetError:
    """The error of a sweep that leaves nothing behind."""
    workspace = Workspace.at(folder.root)
    with pytest.raises(kind) as caught:
        run_sweep(workspace, workspace.sweeps / "t.yaml", RunOptions(is_inline=True))
    assert not (folder.root / "results").exists()
    assert not (folder.root / "artifacts").exists()
    return caught.value


def _without(monkeypatch: pytest.MonkeyPatch, distribution: str) -> None:
    found = exporters.metadata.version

    def version(name: str) -> str:
        if name == distribution:
            raise exporters.metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(exporters.metadata, "version", version)


def test_code_of_a_model_without_trust_stores_no_sweep(folder) -> None:
    for name in ("mine", "other"):
        (folder.root / f"cards/{name}.toml").write_text(ENTRY_POINT)
    folder.write_spec(["m0", "mine", "other"], ["sim-a"])
    error = _refused(folder, UntrustedError)
    assert "model mine" in error.message
    assert "model other" in error.message
    assert error.remedy.count("`trust=true`") == 1


def test_a_size_that_neither_file_nor_card_gives_stores_no_sweep(folder, tmp_path: Path) -> None:
    folder.add_model("open", save_tiny_onnx(tmp_path / "open.onnx", height="height"))
    folder.write_spec(["m0", "open"], ["sim-a"])
    error = _refused(folder, ExportError)
    assert has(error.message, "open.onnx", "'x'", "dynamic", "axis 2")
    assert "[[inputs]]" in error.remedy


def test_a_missing_exporter_stores_no_sweep(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "onnxscript")
    (folder.root / "cards/net.toml").write_text(NETWORK)
    folder.write_spec(["m0", "net"], ["sim-a"])
    error = _refused(folder, LibraryError)
    assert (error.message, error.remedy) == (
        "onnxscript is not installed", "pip install 'fleetrank[onnx,torch]'",
    )  # fmt: skip


@pytest.mark.parametrize("device", ["local-cpu", "sim-a"])
def test_a_missing_runtime_of_this_host_stores_no_sweep_that_needs_it(
    folder, device: str, monkeypatch: pytest.MonkeyPatch, ended_run: Callable[[], None]
) -> None:
    found = runner.find_spec
    lacks = {"onnxruntime"}
    monkeypatch.setattr(runner, "find_spec", lambda name: None if name in lacks else found(name))
    folder.write_spec(["m0"], [device])
    if device == "local-cpu":
        assert "onnxruntime" in _refused(folder, MissingLibraryError).message
        return
    ended_run()  # a user's file is not verified, and a simulated device runs no runtime


def test_a_file_in_the_cache_needs_neither_trust_nor_exporter(
    folder, monkeypatch: pytest.MonkeyPatch, ended_run: Callable[[], None]
) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    ended_run()
    _without(monkeypatch, "onnx")
    ended_run()
    assert folder.record().n_ok == 1


def test_a_resume_without_what_it_needs_leaves_the_sweep_as_it_is(
    folder, monkeypatch: pytest.MonkeyPatch, ended_run: Callable[[], None]
) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    ended_run()
    shutil.rmtree(folder.root / "results/measurements")
    gone = ("results/journal/*", "results/sweeps/*.parts", "artifacts/index/*")
    for kept in [one for pattern in gone for one in folder.root.glob(pattern)]:
        kept.unlink()
    before = folder.record()
    with monkeypatch.context() as patch:
        _without(patch, "onnx")
        with pytest.raises(LibraryError):
            resume_sweep(Workspace.at(folder.root), None, RunOptions(is_inline=True))
    assert folder.record() == before
    resumed = resume_sweep(Workspace.at(folder.root), None, RunOptions(is_inline=True))
    assert resumed.n_ok == 1


@pytest.fixture
def ended_run(folder) -> Callable[[], None]:
    """Runs the sweep `t` to its end."""

    def run() -> None:
        workspace = Workspace.at(folder.root)
        outcome = run_sweep(workspace, workspace.sweeps / "t.yaml", RunOptions(is_inline=True))
        assert outcome.n_missing == 0

    return run
