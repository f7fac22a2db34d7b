"""Parts of table `tokens` on long texts: with two model cards of one name: these are two models."""

from collections.abc import Callable, Iterable, Iterator

import polars as pl
import pytest
from language_rows import SEGMENT, reading_rows
from wording import has

from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]


def _table(frame: pl.LazyFrame, part: str) -> Table:
    return make_table(f"tokens/{part}", frame, Selection())


def _of_card(card: str | None, rows: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    for row in rows:
        yield {**row, "card_sha256": card, "cell_key": f"{row['cell_key']} {card}"}


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["reading", "crossover"])
@pytest.mark.parametrize("other", ["bb" * 32, None])
def test_rows_of_several_cards_name_them(make_attempts: Make, part: str, other: str | None) -> None:
    segments = [*reading_rows(SEGMENT, 128.0), *reading_rows("segment@128+k8+n0", 100.0)]
    rows = [*reading_rows("prefill@256", 256.0), *reading_rows("prefill@512", 640.0), *segments]
    single = [{**row, "model": "gpt", "cell_key": f"gpt {row['cell_key']}"} for row in rows]
    frame = make_attempts([*_of_card("aa" * 32, rows), *_of_card(other, rows), *single])
    table = _table(frame, part)
    named = {"opt (card aaaaaaaa)", f"opt (card {other[:8] if other else '?'})"}
    assert set(table.frame["model"]) == {*named, "gpt"}
    assert any(has(note, "different cards", "opt") for note in table.notes)
    assert any(has(note, "2 models, 1 platform") for note in table.notes)
    assert not any(has(note, "gpt") for note in table.notes)
