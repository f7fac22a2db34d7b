from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.foundation import files
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.parquet import parts
from fleetrank.orchestrator.store.parquet.part_reader import read_rows, read_sweeps, repeat_seconds
from fleetrank.orchestrator.store.parquet.parts import compact_parts, publish_parts, to_frame

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS_PER_PART", 4)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _repeats(folder: Path) -> list[object]:
    return [row["repeat"] for row in read_rows(folder)]


def test_a_row_becomes_a_table_of_the_declared_columns(new_row) -> None:
    frame = to_frame([new_row()])
    assert dict(frame.schema) == SCHEMA
    row = frame.row(0, named=True)
    assert row["samples_ns"] == [10, 20, 30, 40]
    assert row["started_utc"].isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert row["steal_share_before"] is None


def test_a_column_that_an_older_row_lacks_is_null(new_row) -> None:
    row = new_row()
    del row["energy_mj"], row["finished_utc"]
    assert to_frame([row])["energy_mj"].to_list() == [None]


def test_a_value_that_does_not_fit_its_column_is_an_error(new_row) -> None:
    for wrong in ({"load_ns": "soon"}, {"started_utc": "soon"}, {"load_ns": 2**70}):
        with pytest.raises(StoreError, match="do not fit") as caught:
            to_frame([new_row(), new_row(repeat=7, **wrong)])
        assert "'repeat': 7" in caught.value.message
        assert "'repeat': 0" not in caught.value.message


def test_parts_hold_each_row_once_however_often_they_are_published(tmp_path, new_row) -> None:
    for n_rows in (0, 1, 3, 4, 5, 9, 9):
        publish_parts(tmp_path, iter([new_row(repeat=number) for number in range(n_rows)]))
        assert _repeats(tmp_path) == list(range(n_rows))
    assert _names(tmp_path) == [
        "part-00000000.parquet",
        "part-00000004.parquet",
        "part-00000008.parquet",
    ]


def test_publishing_nothing_new_writes_nothing(tmp_path, new_row) -> None:
    rows = [new_row(repeat=number) for number in range(6)]
    assert publish_parts(tmp_path, iter(rows)) == 2
    assert publish_parts(tmp_path, iter(rows)) == 0
    assert publish_parts(tmp_path, iter([*rows, new_row(repeat=6)])) == 1


def test_compaction_keeps_rows_and_order_and_publishing_goes_on_after_it(tmp_path, new_row) -> None:
    rows = [new_row(repeat=number) for number in range(9)]
    publish_parts(tmp_path, iter(rows))
    (tmp_path / ".part-00000000.parquet.123.tmp").write_bytes(b"of a writer that was killed")
    assert compact_parts(tmp_path) == 3
    assert compact_parts(tmp_path) == 1
    assert _names(tmp_path) == ["part-00000000.parquet"]
    assert _repeats(tmp_path) == list(range(9))
    publish_parts(tmp_path, iter([*rows, new_row(repeat=9)]))
    assert _repeats(tmp_path) == list(range(10))


def test_what_a_crash_left_of_a_compaction_is_removed(tmp_path, new_row) -> None:
    rows = [new_row(repeat=number) for number in range(9)]
    publish_parts(tmp_path, iter(rows))
    left_over = (tmp_path / "part-00000004.parquet").read_bytes()
    compact_parts(tmp_path)
    (tmp_path / "part-00000004.parquet").write_bytes(left_over)
    publish_parts(tmp_path, iter(rows))
    assert _repeats(tmp_path) == list(range(9))


def test_a_part_that_is_missing_stops_the_compaction(tmp_path, new_row) -> None:
    publish_parts(tmp_path, iter([new_row(repeat=number) for number in range(9)]))
    (tmp_path / "part-00000004.parquet").unlink()
    with pytest.raises(StoreError, match="do not follow"):
        compact_parts(tmp_path)


def test_a_damaged_part_is_named_and_made_again_once_it_is_gone(tmp_path, new_row) -> None:
    rows = [new_row(repeat=number) for number in range(9)]
    publish_parts(tmp_path, iter(rows))
    part = tmp_path / "part-00000004.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    for read in (lambda: publish_parts(tmp_path, iter(rows)), lambda: _repeats(tmp_path)):
        with pytest.raises(StoreError, match=r"00000004\.parquet is damaged"):
            read()
    part.unlink()
    publish_parts(tmp_path, iter(rows))
    assert _repeats(tmp_path) == list(range(9))


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(st.integers(1, 6), st.sampled_from(["publish", "compact", "lose"])), max_size=8
    ),
    chance=st.randoms(use_true_random=False),
)
def test_whatever_happens_the_parts_become_the_journal_again(
    tmp_path_factory, new_row, steps, chance
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    rows: list[dict[str, object]] = []
    for step in [*steps, "publish"]:
        if isinstance(step, int):
            rows += [new_row(repeat=len(rows) + number) for number in range(step)]
            continue
        if step == "lose" and (paths := sorted(folder.iterdir())):
            chance.choice(paths).unlink()
        publish_parts(folder, iter(rows))
        if step == "compact":
            compact_parts(folder)
    assert _repeats(folder) == list(range(len(rows)))


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(st.integers(1, 6), st.sampled_from(["publish", "compact", "damage"])), max_size=9
    ),
    chance=st.randoms(use_true_random=False),
)
def test_a_damaged_journal_takes_no_row_out_of_the_parts(
    tmp_path_factory, new_row, steps, chance
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    rows: list[dict[str, object]] = []
    shown: set[object] = set()
    n_made = 0
    for step in [*steps, "publish"]:
        if isinstance(step, int):
            rows += [new_row(repeat=n_made + number) for number in range(step)]
            n_made += step
            continue
        if step == "damage" and rows:
            del rows[chance.randrange(len(rows))]
        publish_parts(folder, iter(rows))
        if step == "compact":
            compact_parts(folder)
        shown |= {row["repeat"] for row in rows}
        assert sorted(_repeats(folder)) == sorted(shown)


def test_a_foreign_file_among_the_parts_is_left_alone(tmp_path, new_row) -> None:
    (tmp_path / "part-old.parquet").write_bytes(b"")
    publish_parts(tmp_path, iter([new_row()]))
    assert _repeats(tmp_path) == [0]


def test_readers_do_not_see_a_part_that_is_being_written(tmp_path, new_row, monkeypatch) -> None:
    publish_parts(tmp_path, iter([new_row(repeat=0)]))
    seen = []
    monkeypatch.setattr(files, "sync_file", lambda aside: seen.append(_repeats(tmp_path)))
    publish_parts(tmp_path, iter([new_row(repeat=0), new_row(repeat=1)]))
    assert seen == [[0]]
    assert _repeats(tmp_path) == [0, 1]


def test_a_part_that_cannot_be_finished_changes_nothing(tmp_path, new_row, monkeypatch) -> None:
    publish_parts(tmp_path, iter([new_row(repeat=0)]))

    def fail(aside: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sync_file", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        publish_parts(tmp_path, iter([new_row(repeat=0), new_row(repeat=1)]))
    assert _names(tmp_path) == ["part-00000000.parquet"]
    assert _repeats(tmp_path) == [0]


def test_history_is_the_mean_length_of_good_repeats(tmp_path, new_row) -> None:
    late = "2026-01-02T03:04:11.000006+00:00"
    publish_parts(
        tmp_path,
        iter(
            [
                new_row(),
                new_row(repeat=1, finished_utc=late),
                new_row(repeat=2, status="failed", finished_utc=late),
                new_row(cell_key="other", finished_utc=None),
            ]
        ),
    )
    assert repeat_seconds([tmp_path]) == {"0123456789abcdef": 4.0}
    assert repeat_seconds([tmp_path / "none"]) == {}


def test_times_of_any_iso_length_are_utc(new_row) -> None:
    texts = ["2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05.5+02:00", "2026-01-02T03:04:05Z"]
    frame = to_frame([new_row(started_utc=text) for text in [*texts, "2026-01-02T03:04:05"]])
    seconds = frame["started_utc"].dt.epoch("ms").to_list()
    assert [value - seconds[0] for value in seconds] == [0, 500, 0, 0]


def test_no_sweep_is_an_empty_table() -> None:
    assert dict(read_sweeps([]).schema) == SCHEMA
