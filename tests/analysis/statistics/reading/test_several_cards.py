"""Parts of table `tokens` on long texts: with two model cards of one name: these are two models."""

from collections.abc import Callable, Iterable, Iterator

import polars as pl
import pytest
from language_rows import SEGMENT, crossing_rows, reading_rows
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


def _transfer(make_attempts: Make, *cards: tuple[str, str | None, float]) -> dict[str, object]:
    """The row of d1 and d2; for each card device, card and step of the crossover by model."""
    rows = [
        row
        for number in range(6)
        for device, card, step in cards
        for row in _of_card(
            card, crossing_rows(1.5 + step * number, model=f"m{number}", device=device)
        )
    ]
    frame = _table(make_attempts(rows), "agreement").frame
    names = (pl.col("platform_a"), pl.col("platform_b"))
    is_pair = [name.str.starts_with(to) for name, to in zip(names, ("d1", "d2"), strict=True)]
    return frame.filter(*is_pair, strategy="hmt").row(0, named=True)


def test_two_cards_of_one_name_are_two_models_of_the_transfer(make_attempts: Make) -> None:
    cards = [("d1", "aa", 0.05), ("d1", "bb", -0.05), ("d2", "aa", 0.06)]
    row = _transfer(make_attempts, *cards)
    assert (row["rho"], row["n_models"]) == (pytest.approx(1), 6)
    row = _transfer(make_attempts, *cards, ("d2", "bb", 0.06))
    assert row["n_models"] == 12


def test_platforms_with_unlike_cards_are_not_compared(make_attempts: Make) -> None:
    row = _transfer(make_attempts, ("d1", "aa", 0.05), ("d2", "bb", 0.05))
    assert (row["rho"], row["n_models"]) == (None, 0)
    row = _transfer(make_attempts, ("d1", "aa", 0.05), ("d2", None, 0.05))
    assert (row["rho"], row["n_models"]) == (pytest.approx(1), 6), "the name alone is known"


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["reading", "crossover", "segments"])
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
