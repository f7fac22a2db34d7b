"""A selection gives the same table as rows from which the others were removed before."""

from collections.abc import Mapping
from datetime import timedelta

import polars as pl
import pytest
from daily import daily
from fleet_rows import NETS, PLACES, Place, write_results
from growth_rows import OF_READING, OF_SIDE_ROWS, rows_for
from language_rows import OF_TOKENS, write_language_results
from polars.testing import assert_frame_equal
from shared_tables import NAMES

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.name_patterns import matches
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table, part_of

pytestmark = pytest.mark.slow

NEWER = "paper13-20261122T080000-cd34"
MODELS = ("*s*", "*1*")
OF_TEXT = {*OF_TOKENS, *OF_READING}
OF_ROWS = [name for name in NAMES if name not in OF_SIDE_ROWS]
SELECTIONS: tuple[tuple[Mapping[str, object], pl.Expr], ...] = (
    ({"model": MODELS}, matches("model", *MODELS)),
    ({"runtime": "onnx"}, pl.col("runtime") == "onnx"),
    ({"family": "mobile_cnn"}, pl.col("family") == "mobile_cnn"),
    ({"sweep": NEWER}, pl.col("sweep_id") == NEWER),
    ({"where": (("tier", "edge"),), "precision": "fp32"},
     (pl.col("tier") == "edge") & (pl.col("precision") == "fp32")),
    ({"source_tier": "edge"}, pl.col("tier") == "edge"),
)  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    """Two sweeps, the newer one without a platform, and rows excluded by hand in one of them."""
    more = Place(device="galaxy-22", tier="edge", runtime="onnx", gflops=15.0)
    folders = [tmp_path_factory.mktemp("rows") / name for name in ("old", "new")]
    write_results(folders[0], nets=NETS[:10], places=[*PLACES, more], n_samples=3)
    write_results(
        folders[1], nets=NETS[:10], places=[*PLACES[:5], more], sweep=NEWER, seed=50, n_samples=3
    )
    old, new = map(load_measurements, folders)
    both = pl.concat([old, new.with_columns(pl.col("started_utc") + timedelta(days=1))])
    reason = pl.when(pl.col("model") == "resnet50", pl.col("sweep_id") == NEWER)
    return both.with_columns(excluded=reason.then(pl.lit("a fan failed"))).collect().lazy()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    rows = write_language_results(tmp_path_factory.mktemp("texts") / "results", sweep=NEWER)
    return load_measurements(rows).collect().lazy()


def _table(name: str, rows: pl.LazyFrame, selected: Mapping[str, object]) -> Table | None:
    try:
        return make_table(name, rows, Selection(**selected))  # type: ignore[arg-type]
    except AnalysisError:
        return None


def _without_own_source(frame: pl.DataFrame) -> pl.DataFrame:
    """Claims of one GPU name it as source: whether that is stored depends on all rows."""
    if "claim" not in frame.columns:
        return frame
    reason = pl.when(~pl.col("claim").str.contains("RTX 4090")).then("reason").alias("reason")
    return frame.with_columns(reason)


@pytest.mark.parametrize("name", daily(OF_ROWS, "flops"))
def test_a_selection_gives_the_table_of_the_selected_rows(
    name: str, request: pytest.FixtureRequest
) -> None:
    rows = rows_for(name, request.getfixturevalue("texts" if name in OF_TEXT else "images"))
    fixed = {"workload": "prefill@128"} if name == "tokens" else {}
    shown = 0
    for selected, kept in SELECTIONS:
        is_all = rows.filter(~kept).head(1).collect().is_empty()
        # A pair's source may be of another tier and runtime than the selected rows.
        if is_all or (part_of(name).is_of_pairs and selected.keys() & {"source_tier", "runtime"}):
            continue
        found = _table(name, rows, {**fixed, **selected})
        expected = _table(name, rows.filter(kept), fixed)
        assert (found is None) == (expected is None), selected
        if found is not None and expected is not None:
            assert_frame_equal(*map(_without_own_source, (found.frame, expected.frame)))
            assert found.notes == expected.notes
            shown += 1
    assert shown >= 1
