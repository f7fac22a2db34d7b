"""Part `contexts` of table `tokens`: perplexity over the length of a text, beside the rate."""

from pathlib import Path

import pytest
from context_rows import LENGTHS, write_contexts

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow


def _table(results: Path, **selected: object) -> Table:
    frame = load_measurements(results)
    chosen = Selection(**selected)  # type: ignore[arg-type]
    return make_table("tokens/contexts", frame, chosen, results=results)


def test_every_way_has_its_lengths_change_and_rate(tmp_path: Path) -> None:
    table = _table(write_contexts(tmp_path))
    lengths = {way: part["tokens"].to_list() for (way,), part in table.frame.group_by("sizes")}
    assert lengths == {
        "vanilla": [*LENGTHS[:3]], "window 512, stride 256": [*LENGTHS],
        "segment@512": [*LENGTHS],
    }  # fmt: skip
    vanilla = table.frame.filter(sizes="vanilla")
    assert vanilla["change_percent"].to_list() == pytest.approx(
        [0, 100 * (18.976 / 19.488 - 1), 100 * (17.952 / 19.488 - 1)]
    )
    assert table.frame["tokens_per_s"].null_count() == 0
    assert "3 lines of several texts" in " ".join(table.notes)


def test_a_rate_is_that_of_the_same_way(tmp_path: Path) -> None:
    results = write_contexts(tmp_path)
    times = make_table(
        "tokens/reading",
        load_measurements(results),
        Selection(settings=(("tokens", "4096"),)),
        results=results,
    ).frame
    mine = _table(results).frame.filter(tokens=4096)
    for sizes in ("window 512, stride 256", "segment@512"):
        (wanted,) = times.filter(sizes=sizes, tokens=4096)["tokens_per_s"]
        assert mine.filter(sizes=sizes)["tokens_per_s"].to_list() == [wanted]


def test_without_measurements_the_perplexities_stay(tmp_path: Path) -> None:
    (tmp_path / "measurements").mkdir()
    frame = _table(write_contexts(tmp_path, is_measured=False)).frame
    assert frame["perplexity"].null_count() == 0
    assert frame["tokens_per_s"].null_count() == frame.height
    assert frame["reason"].null_count() == 0


def test_without_perplexities_the_remedy_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NoDataError) as raised:
        _table(write_contexts(tmp_path), model="nobody")
    assert "eval ppl" in raised.value.remedy
