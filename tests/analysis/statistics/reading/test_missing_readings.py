"""Tables on long texts name what they leave out, and what is doubtful, as every table does."""

from collections.abc import Callable, Iterable, Iterator

import polars as pl
import pytest
from language_rows import SEGMENT
from language_rows import reading_rows as _rows
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
FAILED = {"status": "failed", "error_kind": "out_of_memory", "latency_p50_ns": None}


def _table(
    frame: pl.LazyFrame, limit_mib: float | None = None, *, part: str = "reading", **settings: str
) -> Table:
    given = tuple(sorted(settings.items()))
    return make_table(f"tokens/{part}", frame, Selection(max_memory_mib=limit_mib, settings=given))


def _study(**of_longest: object) -> Iterator[dict[str, object]]:
    """Prompts and a segment; what is given is of the longest prompt, 500 MiB of which are used."""
    yield from _rows("prefill@256", 256.0)
    yield from _rows("prefill@512", 640.0)
    yield from _rows("prefill@1024", 2048.0, **{"peak_memory_bytes": 500 << 20, **of_longest})
    yield from _rows(SEGMENT, 128 * 1.4)


def _reasons(table: Table) -> tuple[str, str]:
    """Of vanilla and of the segment, at 1,024 tokens."""
    frame = table.frame.filter(tokens=1024)
    vanilla, segment = (frame.filter(strategy=one)["reason"][0] for one in ("vanilla", "hmt"))
    return vanilla, segment


def test_a_prompt_above_the_limit_of_memory_says_so(make_attempts: Make) -> None:
    table = _table(make_attempts(_study()), 100.0, tokens="1024")
    for reason in _reasons(table):
        assert has(reason, "above the limit of 100 MiB", "prefill@1024", "500 MiB")
    unknown = make_attempts(_study(peak_memory_bytes=None))
    for reason in _reasons(_table(unknown, 100.0, tokens="1024")):
        assert has(reason, "without a peak memory", "100 MiB", "prefill@1024")


def test_a_limit_below_every_cell_is_named(make_attempts: Make) -> None:
    with pytest.raises(NoDataError) as raised:
        _table(make_attempts(_study()), 10.0)
    assert has(raised.value.message, "10 MiB", "4 rows above")


def test_what_is_excluded_by_hand_is_named_with_its_reason(make_attempts: Make) -> None:
    table = _table(make_attempts(_study(excluded="the fan stood.")), tokens="1024")
    for reason in _reasons(table):
        assert has(reason, "excluded by hand", "prefill@1024", "the fan stood")
    assert sum(has(note, "5 rows", "excluded: the fan stood") for note in table.notes) == 1
    with pytest.raises(NoDataError) as raised:
        _table(make_attempts(_rows("prefill@256", 256.0, excluded="the fan stood.")))
    assert has(raised.value.message, "5 rows", "excluded: the fan stood")


def test_cells_that_only_failed_are_counted_once(make_attempts: Make) -> None:
    rows = [
        *_study(**FAILED),
        *_rows("prefill@2048", 1.0, **FAILED),
        *_rows("decode@64", 1.0, **FAILED),
        *_rows("prefill@512", 1.0, batch=2, **FAILED),
        *_rows("prefill@512", 1.0, attempt=1, **FAILED),
    ]
    table = _table(make_attempts(rows), tokens="1024")
    assert all(has(reason, "prefill@1024 ended with out_of_memory") for reason in _reasons(table))
    (note,) = (one for one in table.notes if "failed" in one)
    assert has(note, "2 cells of prefill@1024, prefill@2048", "failed attempts only")


def test_unlike_weights_are_the_reason_of_a_missing_prompt(make_attempts: Make) -> None:
    other = {"weights_id": "file:x", "cell_key": "other"}
    rows = [*_study(), *({**row, **other} for row in _rows("prefill@1024", 700.0))]
    for reason in _reasons(_table(make_attempts(rows), tokens="1024")):
        assert has(reason, "left out", "prefill@1024", "unlike weights")


def test_unlike_figures_are_noted_once(make_attempts: Make) -> None:
    rows = [
        *_study(flags=["throttled"]),
        *_rows("prefill@256", 256.0, device="d2", memory_metric="pss", flags=["hot"]),
        *_rows(SEGMENT, 128.0, device="d2", memory_metric="pss", statistic="mean"),
        *_rows("prefill@512", 640.0, device="d2", memory_metric="pss", statistic="median"),
    ]
    notes = _table(make_attempts(rows)).notes
    assert sum(has(note, "peak memory in different ways", "pss on d2") for note in notes) == 1
    assert sum(has(note, "different statistics", "mean on d2") for note in notes) == 1
    assert sum(has(note, "platforms") for note in notes) == 1


def test_cells_that_are_all_ambiguous_are_no_data(make_attempts: Make) -> None:
    rows = list(_rows("prefill@256", 256.0))
    other = ({**row, "weights_id": "file:x", "cell_key": "other"} for row in rows)
    with pytest.raises(NoDataError):
        _table(make_attempts([*rows, *other]))
