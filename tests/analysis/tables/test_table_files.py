"""All tables into a folder: what is written, and what is never overwritten."""

import csv
import json
from pathlib import Path

import polars as pl
import pytest
from daily import daily
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import REQUESTS, TableRequest, export_tables, index_name
from fleetrank.foundation.files import StorageError

pytestmark = pytest.mark.slow
OTHER = "flops --part frm"


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    results = tmp_path_factory.mktemp("tables") / "results"
    write_results(results, nets=NETS[:6], places=PLACES[:3], n_samples=3)
    return load_measurements(results, origins=ORIGINS).collect().lazy()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to files does not depend on how many tables there are."""
    some = [one for one in REQUESTS if one.words in {"latency", "latency --part memory", OTHER}]
    assert len(some) == 3
    monkeypatch.setattr("fleetrank.analysis.tables.tables.REQUESTS", some)


SOME = [one for one in REQUESTS if one.table in {"latency", "eval"}]
"""With tables that need other rows."""


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(SOME, id="some"),
        pytest.param(REQUESTS, id="every", marks=pytest.mark.thorough),
    ],
)
def test_every_table_is_a_file_or_has_a_reason(
    frame: pl.LazyFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[TableRequest],
) -> None:
    monkeypatch.setattr("fleetrank.analysis.tables.tables.REQUESTS", requests)
    entries = export_tables(Session(frame, Selection()), tmp_path / "new" / "folder", form="csv")
    assert [entry.request for entry in entries] == [one.words for one in requests]
    assert {entry.file is None for entry in entries} == {True, False}
    files = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert files == {entry.file for entry in entries if entry.file} | {index_name("csv")}
    for entry in entries:
        assert (entry.file is None) is (entry.missing_because is not None)
    with (tmp_path / "new" / "folder" / "latency.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 18
    index = json.loads((tmp_path / "new" / "folder" / index_name("csv")).read_text())
    cells = index["files"][0]
    assert "6 models" in cells["notes"][0]


@pytest.mark.parametrize(("form", "ending"), daily([("latex", "tex"), ("markdown", "md")], "latex"))
@pytest.mark.usefixtures("few")
def test_formats_share_a_folder(
    frame: pl.LazyFrame, tmp_path: Path, form: str, ending: str
) -> None:
    export_tables(Session(frame, Selection()), tmp_path, form="csv")
    export_tables(Session(frame, Selection()), tmp_path, form=form)
    export_tables(Session(frame, Selection()), tmp_path, form="csv")
    assert (tmp_path / f"latency.{ending}").exists()


@pytest.mark.usefixtures("few")
def test_a_file_that_somebody_wrote_or_changed_stays(frame: pl.LazyFrame, tmp_path: Path) -> None:
    (tmp_path / "flops-frm.csv").write_text("mine")
    with pytest.raises(AnalysisError, match=r"flops-frm\.csv"):
        export_tables(Session(frame, Selection()), tmp_path, form="csv")
    assert [path.name for path in tmp_path.iterdir()] == ["flops-frm.csv"]
    export_tables(Session(frame, Selection()), tmp_path, form="csv", may_overwrite=True)
    assert (tmp_path / "flops-frm.csv").read_text().startswith("model,")
    (tmp_path / "latency-memory.csv").write_text("mended by hand")
    with pytest.raises(AnalysisError, match=r"latency-memory\.csv"):
        export_tables(Session(frame, Selection()), tmp_path, form="csv")


@pytest.mark.usefixtures("few")
def test_a_link_is_replaced_and_never_followed(frame: pl.LazyFrame, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "latency.csv").symlink_to(outside)
    with pytest.raises(AnalysisError, match=r"latency\.csv"):
        export_tables(Session(frame, Selection()), folder, form="csv")
    export_tables(Session(frame, Selection()), folder, form="csv", may_overwrite=True)
    assert outside.read_text() == "mine"
    assert not (folder / "latency.csv").is_symlink()


@pytest.mark.usefixtures("few")
def test_an_index_of_somebody_else_is_in_the_way(frame: pl.LazyFrame, tmp_path: Path) -> None:
    (tmp_path / index_name("csv")).write_text('{"tables": 3}')
    with pytest.raises(AnalysisError, match="no export wrote"):
        export_tables(Session(frame, Selection()), tmp_path, form="csv")


@pytest.mark.usefixtures("few")
def test_nothing_to_say_makes_no_folder(frame: pl.LazyFrame, tmp_path: Path) -> None:
    with pytest.raises(NoDataError):
        export_tables(Session(frame, Selection(model="nobody")), tmp_path / "x", form="csv")
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("few")
def test_a_folder_that_is_a_file_is_an_error_with_a_remedy(
    frame: pl.LazyFrame, tmp_path: Path
) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(StorageError) as raised:
        export_tables(Session(frame, Selection()), tmp_path / "x", form="csv")
    assert raised.value.remedy
