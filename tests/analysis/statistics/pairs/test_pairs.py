"""Two models here and on the devices of users, from planted latencies."""

import math
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from daily import daily
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.process_noise import noise_of
from fleetrank.analysis.statistics.measured.verdicts import doubts_of
from fleetrank.analysis.statistics.pairs import pair_counts as counted
from fleetrank.analysis.statistics.pairs.fastest import fastest
from fleetrank.analysis.statistics.pairs.pair_answer import gap_sentences, holds, pair_sentences
from fleetrank.analysis.statistics.pairs.pair_counts import pair_counts
from fleetrank.analysis.statistics.pairs.pair_next import measuring_command, repeats_to_settle
from fleetrank.analysis.statistics.pairs.pair_orders import Order, PairOrder
from fleetrank.analysis.statistics.pairs.pairs import faster, pair_table
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

MODELS = 12
PHONES = {"origin": "imported", "tier": "edge"}


def session_of(frame, **chosen):
    return Session(frame, Selection(**chosen))


def processes(model, device, latencies, **facts):
    return [
        {"model": model, "device": device, "latency_p50_ns": latency, "repeat": at} | facts
        for at, latency in enumerate(latencies)
    ]


def near(middle, spread, n=5):
    """Values around the middle, whose logarithms have this standard deviation."""
    if n == 1:
        return [middle]
    logs = np.linspace(-1, 1, n)
    return middle * np.exp(spread * logs / logs.std(ddof=1))


def fleet(make_attempts, phones=6, missing=(), spread=0.0, without=()):
    """`here` and phones rank twelve models alike, up to noise; m0 is 1.3 times as fast as m1."""
    rng = np.random.default_rng(1)
    size = np.log(1e6) + np.concatenate([[0, math.log(1.3)], rng.uniform(0.6, 3, MODELS - 2)])
    rows = []
    for at, device in enumerate(["here", *(f"p{number}" for number in range(phones))]):
        noise = spread * rng.normal(size=MODELS)
        for model in range(MODELS):
            latency = np.exp(size[model] + 0.3 * at + noise[model])
            if (device, model) not in missing and device not in without:
                n = 5 if device == "here" else 1
                facts = {} if device == "here" else PHONES
                rows += processes(f"m{model}", device, near(latency, 0.02, n), **facts)
    return make_attempts(rows)


def test_the_order_here_is_compared_with_each_other_platform(make_attempts) -> None:
    rows = []
    for device, of_b in (("here", 2.0), ("kept", 1.5), ("reversed", 0.5), ("equal", 1.01)):
        rows += processes("a", device, near(1e6, 0.01))
        rows += processes("b", device, near(of_b * 1e6, 0.01))
    rows += processes("a", "undecided", near(1e6, 0.3)) + processes(
        "b", "undecided", near(1.1e6, 0.3)
    )
    answer = faster(session_of(make_attempts(rows), source="here"), "b", "a")
    assert (answer.here.model_a, answer.here.ratio) == ("a", pytest.approx(2))
    assert {one.platform_key.split("/")[0]: one.order for one in answer.targets} == {
        name: Order(name) for name in ("kept", "reversed", "equal", "undecided")
    }


def test_without_an_order_here_none_is_kept_or_reversed(make_attempts) -> None:
    rows = []
    for device, of_b in (("here", 1.03), ("phone", 1.5), ("board", 0.5), ("tablet", 1.6)):
        spread = 0.1 if device == "here" else 0.01
        rows += processes("a", device, near(1e6, spread))
        rows += processes("b", device, near(of_b * 1e6, spread))
    session = session_of(make_attempts(rows), source="here")
    answer = faster(session, "a", "b")
    assert {one.device.removeprefix("model of "): one.order for one in answer.targets} == {
        "phone": Order.A_FIRST, "tablet": Order.A_FIRST, "board": Order.B_FIRST,
    }  # fmt: skip
    said = pair_sentences(answer)
    assert said[0].startswith("Undecided here")
    assert has(said, "a is faster on 2.", "b is faster on 1", "board", "0.50")
    (count,), _ = pair_counts(session, "a")
    assert (count.kept, count.reversed, count.undecided) == (0, 0, 3)
    assert pair_counts(session) == ((), 0)


def test_a_pair_that_is_equal_here_is_reversed_nowhere(make_attempts) -> None:
    rows = []
    for device, of_b in (("here", 1.02), ("phone", 1.5), ("board", 0.5)):
        rows += processes("a", device, near(1e6, 0.005))
        rows += processes("b", device, near(of_b * 1e6, 0.005))
    session = session_of(make_attempts(rows), source="here")
    assert pair_counts(session) == ((), 0)
    (count,), _ = pair_counts(session, "a")
    assert (count.kept, count.reversed, count.undecided) == (0, 0, 2)


def test_two_models_that_are_equal_here_are_called_so(make_attempts) -> None:
    rows = processes("a", "here", near(1e6, 0.005)) + processes("b", "here", near(1.02e6, 0.005))
    rows += processes("a", "phone", near(1e6, 0.01)) + processes("b", "phone", near(2e6, 0.01))
    answer = faster(session_of(make_attempts(rows), source="here"), "a", "b")
    assert answer.here.low is not None
    assert answer.here.low > 1, "a difference, but smaller than the margin"
    said = pair_sentences(answer)
    assert has(said[0], "Equal here within 5 %", "a is 1.02 times")
    assert answer.targets[0].order is Order.A_FIRST
    assert answer.next_step is None
    assert holds(answer, "undecided")


def test_the_interval_is_that_of_two_medians_with_one_variance(make_attempts) -> None:
    """Student's t of 8 degrees; a median of 5 has 1.434 times the variance of their mean."""
    rows = processes("a", "here", near(1e6, 0.03)) + processes("b", "here", near(2e6, 0.03))
    here = faster(session_of(make_attempts(rows)), "a", "b").here
    reach = 2.306004 * math.sqrt(0.03**2 * 1.434 * (1 / 5 + 1 / 5))
    assert here.low == pytest.approx(2 * math.exp(-reach), rel=1e-6)
    assert here.high == pytest.approx(2 * math.exp(reach), rel=1e-6)
    assert (here.n_a, here.n_b) == (5, 5)


def test_a_noisy_cell_does_not_widen_the_ratios_of_others(make_attempts) -> None:
    quiet = [row for at in range(6) for row in processes(f"m{at}", "here", near(1e6, 0.02))]
    calm = faster(session_of(make_attempts(quiet)), "m0", "m1").here
    noisy = quiet + processes("loud", "here", near(3e6, 0.6))
    session = session_of(make_attempts(noisy))
    assert faster(session, "m0", "m1").here.high == pytest.approx(calm.high)
    assert faster(session, "m0", "loud").here.high > 3


def test_intervals_hold_the_true_ratio_as_often_as_they_say(make_attempts) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for number in range(300):
        for model, middle in (("a", 1e6), ("b", 1.2e6)):
            rows += processes(model, f"d{number:03}", middle * np.exp(0.05 * rng.normal(size=3)))
    answer = faster(session_of(make_attempts(rows), source="d000"), "a", "b")
    inside = [one.low <= 1.2 <= one.high for one in answer.targets]
    assert 0.91 < np.mean(inside) < 0.98


def test_published_figures_take_their_noise_from_other_releases(make_attempts) -> None:
    rows = []
    for model, latency in (("a", 1e6), ("b", 1.5e6), ("c", 3e6)):
        later = latency * (1.2 if model == "c" else 1.0)
        rows += processes(model, "phone", [latency], **PHONES)
        rows += processes(model, "phone", [later], sweep_id="s2", started_utc=1, **PHONES)
        rows += processes(model, "once", [latency], **PHONES)
    session = session_of(make_attempts(rows))
    noise = noise_of(session)
    expected = math.log(1.2) ** 2 / 2 / 3  # c alone varies, so the usual spread counts little
    assert noise.variance[0, 0] == pytest.approx(expected), "once has the phone's"
    assert 0 < noise.variance[0, 1] < expected < noise.variance[2, 1]
    assert faster(session, "a", "b").here.low is not None


def test_a_device_counts_once_in_all_its_settings_and_that_of_here_is_no_other(
    make_attempts,
) -> None:
    settings = [("here", "onnx", 1.5), ("here", "tflite", 1.5), ("here", "torch", 0.5),
                ("p1", "onnx", 1.5), ("p1", "tflite", 0.6), ("p2", "onnx", 1.5)]  # fmt: skip
    rows = [
        row
        for device, runtime, of_b in settings
        for model, latency in (("a", 1e6), ("b", of_b * 1e6))
        for row in processes(model, device, near(latency, 0.01), runtime=runtime)
    ]
    said = pair_sentences(faster(session_of(make_attempts(rows), source="here/onnx*"), "a", "b"))
    assert has(said[:1], "Not everywhere", "on 1 of 2 other devices")
    assert has(said, "2 other settings", "kept in 1", "reversed in", "torch", "0.50")
    assert any("Mixed on 1 (model of p1: 0.60 in 1 of 2 settings)" in one for one in said)
    (alone, *_) = [[r for r in rows if r["device"] == "here" and r["runtime"] == "onnx"]]
    said = pair_sentences(faster(session_of(make_attempts(alone)), "a", "b"))
    assert has(said, "no other device measured both")


def test_without_any_repeat_the_margin_decides_and_is_named(make_grid) -> None:
    frame = make_grid({"here": [1e6, 2e6], "p1": [1e6, 1.04e6], "p2": [1e6, 1.16e6]})
    answer = faster(session_of(frame, source="here"), "m0", "m1")
    assert [one.order for one in answer.targets] == [Order.UNDECIDED, Order.KEPT]
    assert answer.targets[0].low is None
    assert has(pair_sentences(answer), "No repeats", "15 %")


@pytest.mark.parametrize("factor", [2.5, 8])
def test_an_order_that_is_unlike_the_others_is_shown_and_counts_as_undecided(
    make_attempts, factor: float
) -> None:
    rows = fleet(make_attempts, spread=0.03).collect().to_dicts()
    for row in rows:
        if (row["device"], row["model"]) == ("p0", "m0"):
            row["latency_p50_ns"] *= factor
    answer = faster(session_of(make_attempts(rows), source="here"), "m0", "m1")
    (one,) = (one for one in answer.targets if one.order is Order.REVERSED_UNLIKE)
    assert one.platform_key.startswith("p0/")
    assert one.ratio == pytest.approx(1.3 / factor, rel=0.2), "as stored"
    assert one.probability is None, "the others do not fill what it contradicts"
    verdict, *said = pair_sentences(answer)
    assert has([verdict], "Not shown everywhere", "on 5 of 6 other devices")
    assert any("Reversed? on 1 (p0" in one for one in said)
    assert has(said[-1:], "Still open: p0"), "it is the first thing to measure"


def test_a_figure_with_a_known_fault_counts_for_nothing_and_is_named(make_attempts) -> None:
    frame = fleet(make_attempts, spread=0.03)
    slow = frame.collect().to_dicts()
    for row in slow:
        row["flags"] = []
        if (row["device"], row["model"]) == ("p0", "m0"):
            row["latency_p50_ns"] *= 8
            row["flags"] = ["throttled"]
    answer = faster(session_of(make_attempts(slow), source="here"), "m0", "m1")
    orders = [(one.platform_key.split("/")[0], one.order) for one in answer.targets]
    assert sorted(orders) == [
        ("p0", Order.DOUBTFUL),
        *((f"p{at}", Order.KEPT) for at in range(1, 6)),
    ]
    assert has(pair_sentences(answer), "Left out", "p0", "doubtful")
    (doubted,) = (one for one in answer.targets if one.order is Order.DOUBTFUL)
    assert 0.9 < doubted.probability < 0.95, "as if not measured, by seven devices"
    assert doubted.ratio == pytest.approx(1.3 / 8, rel=0.2), "as stored"


@pytest.mark.parametrize(
    "chosen",
    daily(
        [{"model": ("m0", "m1")}, {"model": "m*"}, {"family": "one", "model": "m*"}],
        {"model": ("m0", "m1")},
        {"family": "one", "model": "m*"},
    ),
)
def test_a_figure_is_as_doubtful_among_few_models_as_among_all(make_attempts, chosen) -> None:
    rows = fleet(make_attempts, spread=0.03).collect().to_dicts()
    for row in rows:
        row["family"] = "one" if row["model"] in ("m0", "m1", "m2") else "other"
        if (row["device"], row["model"]) == ("p0", "m0"):
            row["latency_p50_ns"] *= 8
    frame = make_attempts(rows)
    every, few = (doubts_of(session_of(frame, **some))[1] for some in ({}, chosen))
    assert few == every
    assert [model for model, _ in every] == ["m0"]
    (pair, *_) = pair_counts(session_of(frame, source="here", **chosen), "m0")[0]
    assert pair.reversed == 0
    kept = session_of(frame, **chosen | {"model": "m1"})
    assert not doubts_of(kept)[1]


def test_a_device_without_one_of_them_has_a_probability(make_attempts) -> None:
    answer = faster(session_of(fleet(make_attempts, missing={("p0", 0)})), "m0", "m1")
    (open_one,) = (one for one in answer.targets if one.order is Order.NOT_MEASURED)
    assert open_one.platform_key.startswith("p0/")
    assert 0.9 < open_one.probability <= 1
    assert open_one.probability_low <= open_one.probability <= open_one.probability_high
    assert open_one.ratio == pytest.approx(1.3, rel=0.02)
    assert open_one.value_a is None


def test_a_device_that_measured_the_opposite_order_says_that_it_is_unlike(make_attempts) -> None:
    """`predict` says so, too; p1 lacks the same two models and agrees with the others."""
    missing = {(device, model) for device in ("p0", "p1") for model in (0, 1)}
    rows = fleet(make_attempts, phones=7, missing=missing, spread=0.05).collect().to_dicts()
    for row in rows:
        if row["device"] == "p0":
            row["latency_p50_ns"] = 1e13 / row["latency_p50_ns"]
    answer = faster(session_of(make_attempts(rows), source="here"), "m0", "m1")
    unlike, like = (one for one in answer.targets if one.order is Order.NOT_MEASURED)
    assert unlike.is_unlike
    assert unlike.ratio is None
    assert unlike.probability < 0.2
    assert unlike.probability_low < unlike.probability < unlike.probability_high
    assert like.probability > 0.8
    assert like.ratio == pytest.approx(1.3, rel=0.1)
    said = pair_sentences(answer)
    assert has(
        said, "p0", "unlike the others in the 10 models measured there", f"{unlike.probability:.2f}"
    )
    assert has(said, "Not measured on 1 device", f"{like.probability:.2f}", "expected from 6")
    phones = make_attempts([row for row in rows if row["device"] != "here"])
    predicted = make_table("predict", phones, Selection(target="p0/*"))
    assert has(predicted.notes, "p0", "unlike the other devices")


def test_too_few_devices_give_no_probability_and_say_why(make_attempts) -> None:
    answer = faster(session_of(fleet(make_attempts, phones=1, missing={("p0", 0)})), "m0", "m1")
    (open_one,) = answer.targets
    assert open_one.probability is None
    assert has(str(open_one.reason), "fewer", "3", "device models")
    assert has(pair_sentences(answer), "without a probability")


def test_users_are_counted_by_what_holds_on_their_devices(make_attempts) -> None:
    frame = fleet(make_attempts)
    rows = frame.collect().to_dicts()
    for row in rows:
        if (row["device"], row["model"]) == ("p1", "m1"):
            row["latency_p50_ns"] /= 1.6
    frame = make_attempts(rows)
    shares = {"p0": 60, "Model of P1": 30, "unheard-of": 10}
    answer = faster(session_of(frame, source="here"), "m0", "m1", users=shares)
    users = answer.users
    assert has(
        answer.text, "Of your users, 90 %", "measured", "60 %", "not for 30 %", "10 %", "weakly",
        "7 devices of another kind",
    )  # fmt: skip
    assert users.unknown == ("unheard-of",)
    assert users.measured == pytest.approx(0.9)
    assert (users.shown_faster, users.shown_slower) == pytest.approx((0.6, 0.3))
    assert users.expected == pytest.approx(0.1)
    assert users.faster == pytest.approx(0.7, abs=0.02), "p0, not p1, and nearly all of the rest"
    assert (users.low, users.high) == pytest.approx((0.6, 0.7), abs=0.02)
    assert users.cost == pytest.approx((1 - 1.3 / 1.6) * math.exp(0.6) * 0.3 / 0.9, rel=1e-3), (
        "30 of 90 % lose that much, others nothing"
    )


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"p0": 0.3, "p1": 0.3}, "sum to 60 %"), ({"p0": 100, "p1": 250}, "sum to 350"),
        ({"p0": 0.333, "p1": 0.667}, None), ({"p0": 45, "p1": 55}, None),
    ],
)  # fmt: skip
def test_shares_that_are_not_of_all_users_are_named(make_attempts, shares, said) -> None:
    answer = faster(session_of(fleet(make_attempts), source="here"), "m0", "m1", users=shares)
    (sentence,) = (one for one in pair_sentences(answer) if one.startswith("Of your users"))
    assert ("shares sum" in sentence) == (said is not None)
    assert said is None or said in sentence


def test_names_of_users_that_nearly_match_and_shares_that_are_split_are_named(make_grid) -> None:
    frame = make_grid({"here": [1e6, 2e6], "p1": [1e6, 2e6]}).collect()
    again = frame.with_columns(
        pl.col("platform_key") + "/tflite", pl.lit("tflite").alias("runtime")
    )
    frame = pl.concat([frame, again.filter(pl.col("device") == "p1")]).lazy()
    shares = {"p1": 0.6, "Model of P": 0.4}
    users = faster(session_of(frame, source="here"), "m0", "m1", users=shares).users
    assert users.unknown == ("Model of P",)
    assert has(users.notes, "No measurement", "Model of P", "did you mean 'model of p1'?")
    assert has(users.notes, "p1 is split evenly")


def of_precisions(make_attempts):
    """a has both precisions on two devices, b and c one each on the same device."""
    rows = [
        {"model": model, "device": device, "precision": precision, "latency_p50_ns": latency * 1e6,
         "platform_key": f"{device}/onnx/cpu/eager/{precision}/b1/t1/afree/{{}}"}
        for model, device, precision, latency in (
            ("a", "here", "fp32", 4), ("a", "here", "int8", 2), ("a", "p1", "fp32", 4),
            ("a", "p1", "int8", 5), ("b", "here", "fp32", 3), ("c", "here", "int8", 1),
        )
    ]  # fmt: skip
    return make_attempts(rows)


def test_two_precisions_of_a_model_are_compared_on_one_platform(make_attempts) -> None:
    session = session_of(of_precisions(make_attempts), source="here*")
    answer = faster(session, "a:fp32", "a:int8")
    assert (answer.here.model_a, answer.here.ratio) == ("a:int8", pytest.approx(2))
    assert [(one.platform_key[:3], one.order) for one in answer.targets] == [
        ("p1/", Order.REVERSED)
    ]
    assert faster(session, "b", "c:int8").here.model_b == "b:fp32", "it has one precision"
    with pytest.raises(AnalysisError) as raised:
        faster(session, "a", "c:int8")
    assert has(raised.value.remedy, "a:fp32, a:int8")
    with pytest.raises(NoDataError) as raised:
        faster(session, "b", "c")
    assert "`fleetrank faster b:fp32 c:int8`" in raised.value.remedy
    with pytest.raises(AnalysisError, match="precision"):
        faster(session_of(of_precisions(make_attempts), precision="int8"), "a:fp32", "a:int8")


def test_the_fastest_of_several_is_named_on_every_platform(make_grid) -> None:
    frame = make_grid(
        {"p0": [1e6, 2e6, 4e6], "p1": [3e6, 2e6, 4e6], "p2": [1e6, 1.02e6, 4e6],
         "p3": [1e6, 2e6], "p4": [1e6]}
    )  # fmt: skip
    chosen = session_of(frame, settings=(("models", "m2,m0,m1"),))
    sentences, table = fastest(chosen, {"p0": 50, "p2": 20, "p3": 30})
    rows = {row["platform_key"].split("/")[0]: row for row in table.frame.to_dicts()}
    assert [*rows] == ["p0", "p1", "p2", "p3"], "p4 measured one of them"
    assert [row["fastest"] for row in rows.values()] == ["m0", "m1", "m0", "m0"]
    assert [row["verdict"] for row in rows.values()] == ["faster", "faster", "undecided", "faster"]
    assert (rows["p1"]["next"], rows["p1"]["ratio"]) == ("m0", pytest.approx(1.5))
    assert (rows["p1"]["others"], rows["p3"]["others"]) == ("m2 2.00", None)
    assert (rows["p3"]["missing"], rows["p0"]["missing"]) == ("m2", None)
    all_of_them, some, of_users = sentences
    for words in ("Of 3 platforms", "m0 is", "1 (p0/", "m1 is", "1 (p1/", "undecided", "1 (p2/"):
        assert words in all_of_them
    assert "1 platform" in some, "p3 lacks m2"
    assert "m0 is" in of_users, "p0"
    assert "m1" not in of_users, "no user has p1"
    assert of_users.count("50 %") == 2, "p2 is undecided, and p3 lacks m2"
    assert make_table("pairs/fastest", frame, Selection()).frame.height == 4


def test_the_gap_that_is_kept_is_larger_where_devices_disagree(make_attempts) -> None:
    quiet, loud = (
        faster(session_of(fleet(make_attempts, spread=spread), source="here"), "m0", "m1")
        for spread in (0.02, 0.4)
    )
    assert quiet.gap_kept > loud.gap_kept
    assert quiet.gap_needed is not None
    assert has(gap_sentences(quiet), f"From a factor of {quiet.gap_needed:.2f} on")
    assert pair_table(quiet).explanation[-1] == gap_sentences(quiet)[0]
    assert loud.gap_needed is None or loud.gap_needed > quiet.gap_needed


def test_the_open_platform_with_most_users_comes_next(make_attempts) -> None:
    frame = fleet(make_attempts, missing={("p0", 0), ("p1", 0)}, spread=0.1)
    shares = {"p0": 10, "p1": 60, "p2": 30}
    answer = faster(session_of(frame, source="here"), "m0", "m1", users=shares)
    step = answer.next_step
    assert step.row.platform_key.startswith("p1/")
    assert step.share == pytest.approx(0.6)
    assert has(pair_sentences(answer), "Still open: p1", "60 % of the users", "not a device")
    session = session_of(frame, source="here")
    owned = faster(session, "m0", "m1", users=shares, devices=["p0"])
    assert owned.next_step.row.platform_key.startswith("p0/"), "a registered one comes first"
    assert has(pair_sentences(owned), "Next", "p0")


def test_pairs_that_are_reversed_come_first_and_alone(make_grid) -> None:
    frame = make_grid({"here": [1e6, 2e6, 4e6], "p1": [2e6, 1e6, 4e6], "p2": [3e6, 1e6, 2e6]})
    found, _ = pair_counts(session_of(frame, source="here"))
    assert [(one.model_a, one.model_b, one.reversed) for one in found] == [
        ("m0", "m1", 2), ("m0", "m2", 1),
    ]  # fmt: skip
    assert found[0].worst_ratio == pytest.approx(1 / 3)
    every, _ = pair_counts(session_of(frame, source="here"), "m2")
    assert {(one.model_a, one.model_b) for one in every} == {("m0", "m2"), ("m1", "m2")}


def test_of_too_many_pairs_the_most_often_reversed_are_listed(make_grid, monkeypatch) -> None:
    """Three pairs are the opposite somewhere, one of them twice, one by less than the margin."""
    frame = make_grid(
        {"here": [1e6, 2e6, 4e6, 8e6], "p1": [2e6, 1e6, 4e6, 3.9e6], "p2": [3e6, 1e6, 2e6, 8e6]}
    )
    monkeypatch.setattr(counted, "MAX_LISTED", 2)
    counts, n_left_out = pair_counts(session_of(frame, source="here"))
    assert [(one.model_a, one.model_b, one.reversed) for one in counts] == [
        ("m0", "m1", 2), ("m0", "m2", 1),
    ]  # fmt: skip
    assert n_left_out == 1
    notes = make_table("pairs", frame, Selection(source="here")).notes
    assert has(notes[-1], "Only 2 pairs", "1 further pair", "`model=NAME`")


def test_the_table_has_the_rows_of_the_answer(make_attempts) -> None:
    frame = fleet(make_attempts)
    chosen = Selection(source="here", settings=(("model_a", "m1"), ("model_b", "m0")))
    table = make_table("pairs", frame, chosen)
    assert table.frame["order"].to_list() == ["here", *["kept"] * 6]
    assert set(table.frame["model_a"]) == {"m0"}
    listed = make_table("pairs", frame, Selection(settings=(("model_a", "m1"),)))
    assert listed.frame.height == MODELS - 1


def test_what_cannot_be_answered_is_refused_with_a_remedy(make_grid) -> None:
    frame = make_grid({"here": [1e6, 2e6], "p1": [1e6]})
    for names, words in (
        (("m0", "m0"), ("one model",)),
        (("m0", "m7"), ("no platform", "'m7'")),
    ):
        with pytest.raises(AnalysisError) as raised:
            faster(session_of(frame), *names)
        assert has(raised.value.message, *words)
        assert raised.value.remedy
    with pytest.raises(NoDataError) as raised:
        faster(session_of(frame, source="p1"), "m0", "m1")
    assert "fleetrank ab m0 m1" in raised.value.remedy


@pytest.mark.parametrize(
    ("latencies", "word"),
    [
        ({"p1": [1e6, 2e6]}, "Yes: "), ({"p1": [2e6, 1e6]}, "No: "),
        ({"p1": [1e6, 2e6], "p2": [2e6, 1e6]}, "Not everywhere: "), ({}, "Not known elsewhere: "),
        ({"p1": [1e6, 1e6]}, "Not shown elsewhere: "),
    ],
)  # fmt: skip
def test_the_first_word_is_the_answer(make_grid, latencies, word) -> None:
    frame = make_grid({"here": [1e6, 2e6], **latencies})
    first = pair_sentences(faster(session_of(frame, source="here"), "m0", "m1"))[0]
    assert first.startswith(word)
    assert has(first, "m0 is", "2.00", "m1 here")


@pytest.mark.parametrize(
    ("quantity", "column", "unit", "value", "words"),
    [
        ("memory", "peak_memory_bytes", "MiB", 2**20, "m1 needs 2.00 times the memory"),
        ("energy", "energy_mj", "mJ", 1.0, "m1 needs 2.00 times the energy"),
    ],
)  # fmt: skip
def test_memory_and_energy_are_compared_in_place_of_latency(
    make_attempts, quantity, column, unit, value, words
) -> None:
    rows = [
        {"model": f"m{at}", "device": device, "repeat": repeat, "latency_p50_ns": 9e6 / (at + 1)}
        | {column: near((at + 1) * 3 * value, 0.01)[repeat]}
        for device in ("here", "p1") for at in range(2) for repeat in range(5)
    ]  # fmt: skip
    chosen = Selection(source="here", settings=(("quantity", quantity),))
    answer = faster(Session(make_attempts(rows), chosen), "m1", "m0")
    assert (answer.here.model_a, answer.here.unit) == ("m0", unit)
    assert (answer.here.value_a, answer.here.value_b) == pytest.approx((3, 6), rel=0.01)
    assert answer.here.low is not None
    assert has(pair_sentences(answer)[0], words, "also more on 1")


def test_runtime_and_precision_choose_the_other_platforms_only(make_attempts) -> None:
    rows = [
        {"model": f"m{at}", "device": device, "runtime": runtime, "latency_p50_ns": (at + 1) * 1e6}
        for device, runtime in (("here", "onnx"), ("p1", "tflite"), ("p2", "onnx"))
        for at in range(2)
    ]
    answer = faster(session_of(make_attempts(rows), source="here", runtime="tflite"), "m0", "m1")
    assert answer.here.platform_key.startswith("here/onnx")
    assert [one.platform_key.split("/")[0] for one in answer.targets] == ["p1"]


def test_a_registered_device_without_rows_is_not_measured(make_attempts) -> None:
    frame = fleet(make_attempts)
    chosen = session_of(frame, source="here", target="p*")
    answer = faster(chosen, "m0", "m1", devices=["p0", "p-new", "other"])
    open_ones = [one for one in answer.targets if one.order is Order.NOT_MEASURED]
    assert [one.platform_key for one in open_ones] == ["p-new"], "p0 has rows, other does not fit"
    assert open_ones[0].probability is not None
    assert not has(pair_sentences(answer), "alike"), "one device is like no other"


def test_devices_without_rows_are_alike_and_advice_among_them_says_so(make_attempts) -> None:
    frame = fleet(make_attempts, spread=0.3)
    asked = session_of(frame, source="here", target="new*")
    answer = faster(asked, "m0", "m1", devices=["new", "newer"])
    assert answer.next_step.row.label == "new"
    assert has(pair_sentences(answer), "2 devices", "alike", "any of them")
    session, shares = session_of(frame, source="here"), {"new": 0.2, "newer": 0.5, "p0": 0.3}
    users = faster(session, "m0", "m1", users=shares)
    assert users.next_step.row.label == "newer"
    assert has(pair_sentences(users), "2 devices", "alike", "shares of users alone")


def test_the_quicker_of_two_equal_steps_comes_next(make_attempts) -> None:
    """p0 and p1 lack m0; a process takes a minute on p0 and five on p1."""
    rows = fleet(make_attempts, missing={("p0", 0), ("p1", 0)}, spread=0.1).collect().to_dicts()
    took = {"p0": 60, "p1": 300}
    for row in rows:
        row["origin"] = "measured"
        row["finished_utc"] = row["started_utc"] + timedelta(seconds=took.get(row["device"], 120))
    answer = faster(session_of(make_attempts(rows), source="here"), "m0", "m1")
    step = answer.next_step
    assert step.row.platform_key.startswith("p0/")
    assert step.effort.n_processes == 5
    assert step.effort.minutes == pytest.approx(5 * (2 + 1)), "m0 as on the median platform"
    assert has(pair_sentences(answer), "Next, about 15 min", "p0")


@pytest.mark.parametrize(
    ("platform", "command"),
    [
        ("local-cpu/tflite/xnnpack/eager/fp32/b1/t1/afirst_cores/{}",
         "ab a b --runtime tflite --rounds 22"),
        ("gpu/torch/cuda/eager/fp16/b1/t2/afree/{}",
         "ab a:fp16 b:fp16 --runtime torch --threads 2 --rounds 22 --device gpu"),
        ("local-cpu/tflite/builtin/eager/fp32/b1/t1/afirst_cores/{}",
         "run a b --runtime tflite --backend builtin --repeats 22"),
        ("new-phone", "run a b --repeats 22 --device new-phone"),
        ("local-cpu/onnx/cpu/eager/fp32/b8/t1/afirst_cores/{}", None),
        ("d/onnx/b1/t1", None),
    ],
)  # fmt: skip
def test_the_next_step_is_a_command_that_measures_this_platform(platform, command) -> None:
    row = PairOrder(model_a="a", model_b="b", platform_key=platform, label="p", order="undecided")
    found = measuring_command(row, 22, takes_turns=True, workload="image")
    assert found == (command and f"fleetrank {command}")


def test_a_step_that_cannot_change_the_verdict_is_not_proposed(make_attempts) -> None:
    """Twenty devices are kept; one more that is reversed leaves the answer a yes."""
    many = fleet(make_attempts, phones=21, missing={("p0", 0)})
    few = fleet(make_attempts, phones=4, missing={("p0", 0)})
    assert faster(session_of(many, source="here"), "m0", "m1").next_step is None
    assert faster(session_of(few, source="here"), "m0", "m1").next_step is not None


def test_what_is_undecided_here_is_measured_here_first(make_attempts) -> None:
    key = "local-cpu/onnx/cpu/eager/fp32/b1/t1/afirst_cores/{}"
    rows = [
        row
        for model, middle in (("a", 1e6), ("b", 1.02e6))
        for row in processes(model, "local-cpu", near(middle, 0.05), platform_key=key)
    ]
    answer = faster(session_of(make_attempts(rows)), "a", "b", devices=["phone"])
    assert answer.text.startswith("Undecided here")
    n = answer.next_step.effort.n_processes
    assert n > 5
    assert has(answer.text, "Next: `fleetrank ab a b", f"--rounds {n}`", "(here)")


@pytest.mark.parametrize(("ratio", "n"), [(1.1, 22), (1.0, 99), (2.0, 1)])
def test_more_repeats_show_the_order_or_that_both_are_equal(ratio, n) -> None:
    row = PairOrder(
        model_a="a", model_b="b", platform_key="p", label="p", order=Order.UNDECIDED,
        ratio=ratio, n_a=5, n_b=5,
    )  # fmt: skip
    found = repeats_to_settle(row, 0.01, 0.05)
    distance = max(abs(math.log(ratio)), math.log(1.05) - abs(math.log(ratio)))
    assert found == max(math.ceil(math.pi * 0.01 * (2.801585 / distance) ** 2) - 5, 1)
    assert found == pytest.approx(n, abs=20)
    assert repeats_to_settle(row, math.nan, 0.05) is None


def test_with_few_models_here_nothing_is_said_of_gaps(make_attempts) -> None:
    missing = {("here", model) for model in range(2, MODELS)}
    answer = faster(session_of(fleet(make_attempts, missing=missing), source="here"), "m0", "m1")
    assert answer.gap_kept is None
    assert gap_sentences(answer) == ()


@pytest.mark.thorough
def test_conditions_in_which_nearly_all_others_differ_are_named(make_attempts) -> None:
    def first(*places: tuple[str, str, str]) -> str:
        rows = [
            {"model": f"m{at}", "device": f"d{number}", "latency_p50_ns": (at + 1) * 1e6,
             "platform_key": f"d{number}/{runtime}/{backend}/eager/{precision}/b1/t1/afree/{{}}"}
            for number, (runtime, backend, precision) in enumerate(places) for at in range(2)
        ]  # fmt: skip
        return pair_sentences(faster(session_of(make_attempts(rows), source="d0*"), "m0", "m1"))[0]

    here, npu = ("onnx", "cpu", "fp32"), ("onnx", "npu", "fp16")
    assert first(here, npu, npu).endswith("(npu, fp16; here cpu, fp32).")
    others = (("qnn", "npu", "fp16"), ("tflite", "npu", "fp16"))
    assert has(first(here, *others), "npu, fp16, qnn or tflite")
    assert first(here, npu, here).endswith("other devices.")


def test_gaps_are_counted_from_source_to_target(make_grid) -> None:
    """A geometric series by 1.3, the last by 1.2; at the target the two slowest are swapped."""
    series = [1e6 * 1.3**at for at in range(5)]
    series.append(1.2 * series[-1])
    frame = make_grid({"here": series, "p1": [*series[:4], series[5], series[4]], "few": [1e6]})
    chosen = Selection(source="here")
    (row,) = make_table("pairs/gaps", frame, chosen).frame.to_dicts()
    assert (row["n_models"], row["below_1_1"], row["from_1_1"]) == (6, None, 0)
    assert (row["from_1_25"], row["from_1_5"], row["from_2"], row["from_5"]) == (1, 1, 1, None)
    assert row["kept"] == pytest.approx(14 / 15)
    assert row["gap_95"] == pytest.approx(1.3)


def test_a_precision_is_shown_beside_fp32_with_its_size(make_attempts) -> None:
    rows = [
        row | {"precision": precision, "artifact_bytes": megabytes << 20, "cell_key": cell}
        for precision, megabytes, middle, cell in (
            ("fp32", 16, 4e6, "a"), ("int8", 4, 2e6, "b"), ("int4", 2, 6e6, "c"),
        )
        for row in processes(
            "m", "here", near(middle, 0.01), latency_mean_ns=middle * 1.5,
            snr_db=None if precision == "fp32" else 14.5,
        )
    ]  # fmt: skip
    rows += [row | {"precision": "int8"} for row in processes("alone", "here", near(1e6, 0.01))]
    table = make_table("pairs/precisions", make_attempts(rows), Selection())
    assert table.frame["model"].to_list() == ["m", "m"]
    slower, faster_one = table.frame.to_dicts()
    assert (slower["precision"], slower["verdict"]) == ("int4", "slower")
    assert (faster_one["precision"], faster_one["verdict"]) == ("int8", "faster")
    assert slower["ratio"] == pytest.approx(4 / 6)
    assert faster_one["ratio"] == pytest.approx(2)
    assert faster_one["mean_ratio"] == pytest.approx(2)
    assert faster_one["low"] < 2 < faster_one["high"]
    assert (faster_one["file_mib"], faster_one["float_file_mib"]) == (4, 16)
    assert (faster_one["snr_db"], faster_one["beside"]) == (14.5, "fp32")
    assert has(table.notes, "int8", "2.00")
    with pytest.raises(NoDataError):
        make_table("pairs/precisions", make_attempts(rows[:5]), Selection())


def test_a_precision_stands_beside_the_widest_float_of_its_platform(make_attempts) -> None:
    by_device = {"phone": {"fp16": 4, "int8": 2}, "cpu": {"fp32": 9, "fp16": 6, "int8": 3}}
    rows = [
        {"model": "m", "device": device, "precision": word, "cell_key": f"{device} {word}",
         "latency_p50_ns": 1e6 * ms}
        for device, known in by_device.items() for word, ms in known.items()
    ]  # fmt: skip
    table = make_table("pairs/precisions", make_attempts(rows), Selection())
    found = table.frame.select("precision", "beside", "ratio", "float_ms").rows()
    assert found == [
        ("fp16", "fp32", pytest.approx(1.5), pytest.approx(9)),
        ("int8", "fp16", pytest.approx(2), pytest.approx(4)),
        ("int8", "fp32", pytest.approx(3), pytest.approx(9)),
    ]
    assert has(table.notes, "int8", "fp16", "2.00")
    assert has(table.notes, "int8", "fp32", "3.00")


def test_gains_name_the_doubtful_figure_that_they_leave_out(make_attempts) -> None:
    wrong = ("d3", "int8", 4)
    rows = [
        {"model": f"m{i}", "device": device, "precision": word, "cell_key": f"{device} {word} {i}",
         "latency_p50_ns": 1e6 * (i + 1) * (5 if (device, word, i) == wrong else 1)}
        for device in ("d1", "d2", "d3")
        for word in ("fp32", "int8")
        for i in range(8)
    ]  # fmt: skip
    table = make_table("pairs/precisions", make_attempts(rows), Selection())
    assert table.frame.height == 3 * 8 - 1
    assert has(table.notes, "Left out", "m4:int8 on d3")


def test_a_drift_of_the_host_does_not_change_the_gain_of_precisions_that_took_turns(
    make_attempts,
) -> None:
    drift = (1.0, 1.5, 0.9, 1.3, 1.1, 1.8)
    rows = [
        row | {"precision": precision, "cell_key": precision, "round_id": f"r{row['repeat']}",
               "platform_key": f"here/onnx/cpu/eager/{precision}/b1/t1/afree/{{}}"}
        for precision, gain in (("fp32", 1.0), ("int8", 2.0))
        for row in processes("m", "here", [1e6 * factor / gain for factor in drift])
    ]  # fmt: skip
    (row,) = make_table("pairs/precisions", make_attempts(rows), Selection()).frame.to_dicts()
    assert (row["low"], row["ratio"], row["high"]) == pytest.approx((2, 2, 2), rel=0.01)
    alone = make_attempts([row | {"round_id": None} for row in rows])
    (row,) = make_table("pairs/precisions", alone, Selection()).frame.to_dicts()
    assert row["low"] < 1.7


def test_the_question_starts_where_something_was_measured_not_where_it_was_published(
    make_attempts,
) -> None:
    frame = fleet(make_attempts, phones=3)
    answer = faster(session_of(frame), "m0", "m1")
    assert (answer.origin, answer.here.platform_key.split("/")[0]) == ("measured", "here")


@pytest.mark.parametrize(
    ("a", "b", "models"),
    [
        ("web:net:fp16", "n2", {"web:net:fp16", "n2"}),
        ("n2", "n3", {"n2", "lab:n3"}),
        ("n3:fp32", "n2:fp32", {"lab:n3:fp32", "n2:fp32"}),
        ("web:net:fp16", "n2:fp32", {"web:net:fp16:fp32", "n2:fp32"}),
        ("net:fp16", "n3", {"web:net:fp16", "lab:n3"}),
        ("twin", "n2", None), ("net", "n2", None), ("web:net", "n2", None), ("3", "n2", None),
    ],
)  # fmt: skip
def test_an_exact_name_comes_first_and_a_unique_end_stands_for_the_model(
    make_attempts, a, b, models
) -> None:
    """A tag such as `:fp16` of a published name is no precision."""
    names = ("n2", "web:net:fp16", "lab:n3", "lab:twin", "web:twin")
    rows = [
        {"model": name, "device": device, "latency_p50_ns": (at + 1) * 1e6}
        for device in ("here", "p1") for at, name in enumerate(names)
    ]  # fmt: skip
    session = session_of(make_attempts(rows), source="here")
    if models is None:
        with pytest.raises(AnalysisError):
            faster(session, a, b)
        return
    answer = faster(session, a, b)
    assert {answer.here.model_a, answer.here.model_b} == models
    ends = [name for name in (a, b) if not any(one.startswith(name) for one in models)]
    assert [note for note in answer.notes if " is lab:" in note or " is web:" in note] == [
        f"{name} is {one}." for name in ends for one in models if one.endswith(f":{name}")
    ]
