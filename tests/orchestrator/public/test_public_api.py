"""What `import fleetrank` promises."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from fleet_rows import NETS, SWEEP, write_results

import fleetrank
from fleetrank.analysis.stored.selection import Selection


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("public"), n_samples=5)


def test_all_promised_names_are_there() -> None:
    names = [
        "FleetError", "Selection", "__version__", "faster", "figure", "figures", "load", "predict",
        "query", "render", "report", "table", "tables",
    ]  # fmt: skip
    assert dir(fleetrank) == sorted(fleetrank.__all__) == names
    assert all(hasattr(fleetrank, name) for name in fleetrank.__all__)
    assert fleetrank.Selection is Selection
    assert fleetrank.__version__ == version("fleetrank")
    with pytest.raises(AttributeError, match="select"):
        fleetrank.select  # noqa: B018


def _examples() -> list[tuple[str, list[str]]]:
    """Each call of the page's table, and the attributes that its row names."""
    page = Path(__file__).parents[3] / "docs" / "python-api.md"
    rows = re.findall(r"^\| [^|]+ \| `(fleetrank\..+?)`([^|]*) \|$", page.read_text(), re.MULTILINE)
    return [(call, re.findall(r"`(\w+)(?:\(\))?`", rest)) for call, rest in rows]


@pytest.mark.parametrize(("call", "names"), _examples(), ids=lambda one: str(one)[:40])
def test_an_example_of_the_page_runs(
    call: str, names: list[str], results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"fleetrank": fleetrank, "results": results}
    found = eval(call, known)
    assert found is not None
    assert all(hasattr(found, name) for name in names)


def test_every_public_name_has_an_example() -> None:
    text = " ".join(call for call, _ in _examples())
    assert all(f"fleetrank.{name}" in text for name in fleetrank.__all__)


def test_importing_it_loads_no_library() -> None:
    code = "import fleetrank, sys; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "polars", "torch", "ray", "duckdb"} & set(done.stdout.split())


def test_load_has_every_attempt(results: Path) -> None:
    frame = fleetrank.load(results).collect()
    assert set(frame["model"]) == {net.name for net in NETS}
    assert set(frame["status"]) == {"ok", "failed"}
    assert fleetrank.load(results, sweep=SWEEP).collect().height == frame.height


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fleetrank", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip()
