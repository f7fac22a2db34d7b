import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError, NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.scope import comparable_cells, differences
from fleetrank.analysis.stored.selection import Selection


def test_unlike_runtime_versions_inside_a_platform_are_listed(make_attempts) -> None:
    frame = make_attempts(
        [
            {"model": "a", "runtime_version": "1", "device": "d1"},
            {"model": "b", "runtime_version": "2", "device": "d1"},
            {"model": "a", "device": "d2"},
        ]
    )
    cells = cell_values(frame)
    assert differences(cells) == {"d1/onnx/b1/t1": "runtime_version: 1 | 2"}
    kept, notes = comparable_cells(cells)
    assert kept["device"].to_list() == ["d2"]
    assert notes == ("Dropped: d1/onnx/b1/t1, which mixes runtime_version: 1 | 2.",)


def test_unlike_facts_between_repeats_of_one_cell_are_found(make_attempts) -> None:
    frame = make_attempts(
        [{"repeat": 0}, {"repeat": 1, "memory_metric": "maxrss_growth", "origin": "imported"}]
    )
    (text,) = differences(cell_values(frame)).values()
    assert text == "memory_metric: maxrss_growth | vmhwm_growth; origin: imported | measured"


def test_nothing_comparable_left_is_an_error_listing_the_differences(make_attempts) -> None:
    frame = make_attempts([{"model": "a"}, {"model": "b", "sample_kind": "vendor"}])
    with pytest.raises(NotComparableError, match=r"sample_kind: per_inference \| vendor"):
        comparable_cells(cell_values(frame))


@pytest.mark.parametrize("word", ["minimum", "mean"])
def test_a_platform_never_ranks_unlike_statistics(make_attempts, word) -> None:
    frame = make_attempts(
        [{"model": "a", "statistic": "median"}, {"model": "b", "statistic": word}, {"device": "d2"}]
    )
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["device"].to_list() == ["d2"]
    assert has(notes, "Dropped", "d1/onnx/b1/t1", " | ".join(sorted(("median", word))))


MIXED = [
    *({"model": one, "border": "float"} for one in "ab"),
    {"model": "c"},
    {"model": "q", "border": "int8 in, int8 out"},
]


def test_files_that_take_integers_are_not_ranked_with_those_that_take_floats(make_attempts) -> None:
    frame = make_attempts(MIXED)
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["model"].to_list() == ["a", "b", "c"]
    assert has(notes[0], "q", "d1/onnx/b1/t1", "int8 in, int8 out", "float")
    with pytest.raises(NoDataError, match=r"Left out: q on .*int8 in"):
        faster(Session(frame, Selection()), "a", "q")


def test_unlike_borders_are_ranked_if_asked_and_said(make_attempts) -> None:
    session = Session(make_attempts(MIXED), Selection(allow_unlike_border=True))
    assert session.panel.models == ("a", "b", "c", "q")
    assert has(session.panel.notes, "UNLIKE BORDERS", "float; int8 in, int8 out")


def test_unknown_is_no_difference(make_attempts) -> None:
    frame = make_attempts([{"model": "a", "memory_metric": None}, {"model": "b"}])
    assert differences(cell_values(frame)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fact", [{"weights_id": "seeded:1"}, {"card_sha256": "x"}, {"input_size": 299}]
)
def test_a_model_is_common_only_when_card_weights_and_size_are_equal(make_attempts, fact) -> None:
    frame = make_attempts([{"device": "d1"}, {"device": "d2", **fact}, {"model": "b"}])
    kept, notes = comparable_cells(cell_values(frame))
    identities = dict(kept.select("platform_key", "identity").filter(kept["model"] == "a").rows())
    assert len(set(identities.values())) == 2
    assert kept.filter(kept["model"] == "b")["identity"].to_list() == ["b"]
    assert has(notes[0], "a", "different", "cards")


def test_a_model_measured_twice_on_a_platform_is_left_out_there(make_attempts) -> None:
    frame = make_attempts([{"cell_key": "opset 17"}, {"cell_key": "opset 18"}, {"model": "b"}])
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["model"].to_list() == ["b"]
    assert has(notes[0], "d1/onnx/b1/t1", "exporter", "options")


def test_an_imported_row_states_no_weights_and_joins_the_card_it_was_declared_equal_to(
    make_attempts,
) -> None:
    unstated = {"card_sha256": None, "weights_id": None, "device": "d2"}
    frame = make_attempts([{"device": "d1"}, unstated])
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["identity"].to_list() == ["a", "a"]
    assert notes == ()
    frame = make_attempts([{"device": "d1"}, {"device": "d3", "weights_id": "other"}, unstated])
    kept, _ = comparable_cells(cell_values(frame))
    assert kept["identity"].n_unique() == 3


def _releases(make_attempts, *releases):
    """Attempts of published releases: (sweep id, version of the tool, hour, models)."""
    return make_attempts(
        [
            {"sweep_id": sweep, "model": model, "runtime_version": tool, "started_utc": hour,
             "origin": "imported", "latency_p50_ns": float(hour + 1)}
            for sweep, tool, hour, models in releases
            for model in models
        ]
    )  # fmt: skip


OLD, NEW = "import-hub-v0.9.1-20260101T000000-aa", "import-hub-v0.28.0-20260101T000001-bb"


def test_a_second_release_keeps_the_platform_and_counts_what_is_stale(make_attempts) -> None:
    """Without this, importing history removed up to half of the platforms from every ranking."""
    frame = _releases(make_attempts, (OLD, "2.20", 0, "abcde"), (NEW, "2.31", 1, "abcd"))
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["model"].to_list() == list("abcd")
    assert kept["runtime_version"].unique().to_list() == ["2.31"]
    (note,) = notes
    assert all(part in note for part in ("1 older value", "d1/onnx/b1/t1", "2.20 | 2.31"))


def test_a_release_that_mixes_patch_versions_keeps_its_platform(make_attempts) -> None:
    frame = _releases(
        make_attempts,
        (OLD, "2.30.4", 0, "abcde"),
        (NEW, "2.31.0.2504", 1, "ab"),
        (NEW, "2.31.1.2507", 1, "cd"),
    )
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["model"].to_list() == list("abcd")
    assert set(kept["runtime_version"]) == {"2.31.0.2504", "2.31.1.2507"}
    assert has(notes, "1 older value", "2.30 | 2.31")
    assert has(notes, "one version: 2.31.0.2504, 2.31.1.2507 on d1/onnx/b1/t1", "patch only")


@pytest.mark.parametrize("other", ["2.14.0+cpu", "2.13.0+cu128", "3.13.0+cpu", "2.13.0rc1+cpu"])
def test_versions_that_differ_in_more_than_the_patch_are_unlike(make_attempts, other) -> None:
    frame = make_attempts(
        {"model": model, "runtime_version": version}
        for model, version in (("a", "2.13.0+cpu"), ("b", "2.13.1+cpu"), ("c", other))
    )
    (text,) = differences(cell_values(frame)).values()
    assert text.startswith("runtime_version: ")


def test_repeats_of_a_cell_on_two_patches_are_one_version(make_attempts) -> None:
    frame = make_attempts(
        [{"repeat": 0, "runtime_version": "1.2.3"}, {"repeat": 1, "runtime_version": "1.2.4"}]
    )
    assert differences(cell_values(frame)) == {}


def test_versions_decide_what_is_newest_whatever_was_imported_first(make_attempts) -> None:
    frame = _releases(make_attempts, (OLD, "2.20", 5, "abcde"), (NEW, "2.31", 1, "abcd"))
    kept, _ = comparable_cells(cell_values(frame))
    assert kept["sweep_id"].unique().to_list() == [NEW]
    assert kept["latency_ns"].unique().to_list() == [2.0]


def test_an_older_sweep_of_the_same_version_still_completes_a_platform(make_attempts) -> None:
    frame = _releases(make_attempts, (OLD, "2.31", 0, "abcde"), (NEW, "2.31", 1, "abcd"))
    kept, notes = comparable_cells(cell_values(frame))
    assert kept["model"].to_list() == list("abcde")
    assert notes == ()


def test_models_of_unlike_axis_sizes_are_never_ranked_together(make_attempts) -> None:
    def on(device: str, axes: str | None) -> dict[str, object]:
        suffix = "" if axes is None else f"/{axes}"
        return {"device": device, "platform_key": f"{device}/onnx{suffix}", "axes": axes}

    places = [on("d1", "seq=128"), on("d1", "seq=512"), on("d2", "seq=512"), on("d1", None)]
    frame = make_attempts([{"model": name, **place} for name in "ab" for place in places])
    kept, notes = comparable_cells(cell_values(frame))
    by_platform = dict(kept.group_by("platform_key").agg(pl.col("identity").sort()).iter_rows())
    long = ["a (seq=512)", "b (seq=512)"]
    assert by_platform == {
        "d1/onnx/seq=128": ["a (seq=128)", "b (seq=128)"],
        "d1/onnx/seq=512": long,
        "d2/onnx/seq=512": long,
        "d1/onnx": ["a", "b"],
    }
    assert not any("different cards" in note for note in notes)
