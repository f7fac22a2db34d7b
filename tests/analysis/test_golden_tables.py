"""Every figure and note of every table of a fixed set of rows, held against recorded files."""

import json
import math
from pathlib import Path

import pytest
from fleet_rows import write_results
from golden_tables import Tables, figures, tables_of
from golden_texts import hold, notes_of

from fleetrank.analysis.tables.tables import REQUESTS

pytestmark = pytest.mark.slow

RECORDED = json.loads((Path(__file__).parents[1] / "data/golden/tables.json").read_text())
"""Of `write_results` with its defaults: made by `figures_of`, version 0.1.0, 2026-11-23."""


def is_equal(left: object, right: object) -> bool:
    # Sums may be taken in another order by another version of a library: the last digits.
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-15)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_equal, left, right))
    return left == right


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return tables_of(write_results(tmp_path_factory.mktemp("golden")))


def test_every_figure_is_the_recorded_one(tables: Tables, subtests: pytest.Subtests) -> None:
    found = json.loads(json.dumps(figures(tables)))
    for name, before in RECORDED.items():
        with subtests.test(name):
            assert_recorded(found[name], before)


def test_every_note_is_the_recorded_one(tables: Tables) -> None:
    hold("notes.txt", notes_of(tables))


def assert_recorded(now: object, before: object) -> None:
    if not isinstance(now, dict) or not isinstance(before, dict):
        assert now == before
        return
    assert list(now) == list(before)
    for column, values in before.items():
        assert is_equal(now[column], values), column


def test_the_record_is_of_every_table_and_holds_figures() -> None:
    assert set(RECORDED) == {request.words for request in REQUESTS}
    n_figures = sum(len(v) for t in RECORDED.values() if isinstance(t, dict) for v in t.values())
    assert n_figures > 5000
