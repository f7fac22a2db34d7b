"""The notebooks of the documentation run from top to bottom on a small workspace."""

from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results

nbformat = pytest.importorskip("nbformat", reason="the extra docs is not installed")
nbclient = pytest.importorskip("nbclient", reason="the extra docs is not installed")
NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["transfer.ipynb"]


# Its client closes the kernel's sockets after the loop they belong to.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = write_results(tmp_path / "results", nets=NETS, places=PLACES, n_samples=3)
    monkeypatch.setenv("FLEETRANK_RESULTS", str(results))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    kinds = {kind for out in outputs for kind in out.get("data", {})}
    assert {"image/svg+xml", "text/html"} <= kinds
    assert any("13 models, 6 platforms" in out.get("text", "") for out in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
