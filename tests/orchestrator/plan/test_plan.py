from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import has

from fleetrank.analysis.stored.name_patterns import matches
from fleetrank.analysis.stored.selection import fits_text
from fleetrank.foundation.vocabulary import Family, Format, Precision, WeightsKind
from fleetrank.models.cards.card import ExportRequest, ModelCard, ResolvedCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import CardInput
from fleetrank.models.cards.zoo import load_language_zoo, load_zoo
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import DevicePlace, RoundRules
from fleetrank.orchestrator.plan.estimate import measuring_s
from fleetrank.orchestrator.plan.pinning import DeviceCores
from fleetrank.orchestrator.plan.plan import make_plan, narrow, select_models
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

BOX = DeviceFile(name="box", kind="cpu")
DEVICES = {"box": BOX, "local-cpu": BOX, "sim": DeviceFile(name="sim", kind="simulated")}


PLACES = {
    "box": DevicePlace(device="d", host="h", needs_quiet=True),
    "sim": DevicePlace(device="d", host="h", needs_quiet=False),
}


def _make(spec: SweepSpec, cards: dict[str, ModelCard], devices: dict[str, DeviceFile], **more):
    models = [resolve(card) for card in select_models(spec, cards)]
    return make_plan(spec, models, devices, **more)


def _card(name: str, family: Family = Family.HYBRID) -> ModelCard:
    return ModelCard(name=name, family=family, source=Source.TIMM, entry=name, weights_tag="tag")


CARDS = {
    "one": _card("one"),
    "two": _card("two", Family.MOBILE_CNN),
    "three": _card("three", Family.MOBILE_CNN),
}


def _spec(**keys: object) -> SweepSpec:
    return SweepSpec.model_validate({"name": "s", "models": "all"} | keys)


def _plan(**keys: object):
    return _make(_spec(**keys), CARDS, DEVICES)


def test_a_plan_is_every_combination_once() -> None:
    plan = _plan(threads=[1, 2, 2], batch=[1, 4], devices=["local-cpu", "sim", "box"])
    assert len(plan.cells) == 3 * 3 * 2 * 2 * 2
    assert len({cell.cell_key for cell in plan.cells}) == len(plan.cells)
    assert {cell.device for cell in plan.cells} == {"box", "sim"}
    assert plan.skipped == ()


def test_a_gpu_gets_its_own_backends_unless_the_specification_names_some() -> None:
    gpus = {"gpu": DeviceFile(name="gpu", kind="cuda")}
    spec = {"runtimes": ["onnx", "torch"], "devices": "gpu"}
    plan = _make(_spec(**spec), CARDS, gpus)
    assert {cell.execution.backend for cell in plan.cells} == {"cuda"}
    named = _make(_spec(**spec, backends={"onnx": ["tensorrt"]}), CARDS, gpus)
    assert {cell.execution.backend for cell in named.cells} == {"cuda", "tensorrt"}


def test_the_same_specification_gives_the_same_plan() -> None:
    assert _plan(threads=[1, 2]) == _plan(threads=[1, 2])


def test_devices_share_what_is_equal_between_their_cells() -> None:
    cells = _plan(devices=["box", "sim"], runtimes="onnx").cells
    assert {cell.device for cell in cells} == {"box", "sim"}
    assert len({id(cell.export) for cell in cells}) == 3
    assert len({id(cell.execution) for cell in cells}) == 1


def test_the_order_of_a_list_does_not_change_a_key() -> None:
    one = _plan(threads=[1, 2], models=["one", "two"])
    other = _plan(threads=[2, 1], models=["two", "one"])
    assert {cell.cell_key for cell in one.cells} == {cell.cell_key for cell in other.cells}


def test_models_are_named_by_name_family_or_all() -> None:
    names = lambda **keys: [c.export.card.name for c in _plan(runtimes="onnx", **keys).cells]  # noqa: E731
    assert names(models="all") == ["one", "two", "three"]
    assert names(models=["mobile_cnn", "two"]) == ["two", "three"]
    assert names(models="one") == ["one"]


def test_each_runtime_gets_its_own_format_backend_modes_and_options() -> None:
    plan = _plan(
        models="one",
        modes={"torch": ["eager", "compile"]},
        runtime_options={"onnx": {"spinning": False, "a": 1}},
    )
    seen = [
        (cell.execution.runtime, cell.export.format, cell.execution.backend, cell.execution.mode)
        for cell in plan.cells
    ]
    assert seen == [
        ("onnx", "onnx", "cpu", "eager"),
        ("torch", "pt2", "cpu", "eager"),
        ("torch", "pt2", "cpu", "compile"),
        ("tflite", "tflite", "xnnpack", "eager"),
    ]
    assert plan.cells[0].execution.options == (("a", 1), ("spinning", False))
    assert plan.cells[1].execution.options == ()


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ("first_cores", [(0,), (0, 1, 2)]),
        ("free", [None, None]),
        ([4, 6, 5], [(4,), (4, 6, 5)]),
    ],
)
def test_affinity_follows_the_threads(affinity, expected) -> None:
    plan = _plan(models="one", runtimes="onnx", threads=[1, 3], affinity=affinity)
    assert [cell.execution.affinity for cell in plan.cells] == expected


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ((0, 1), [(0,), (0, 1)]),
        ((0, 2), [(0,), (0, 2)]),
        ((3, 5), [(3,), (3, 5)]),
        ((7,), [(7,), None]),
    ],
)
def test_each_thread_gets_a_core_of_its_own_where_the_device_has_them(cpus, expected) -> None:
    spec = _spec(models="one", runtimes="onnx", threads=[1, 2], devices=["box", "sim"])
    plan = _make(spec, CARDS, DEVICES, cores={"box": DeviceCores(one_per_core=cpus)})
    seen = [cell.execution.affinity for cell in plan.cells]
    assert seen == [*expected, (0,), (0, 1)]


def test_the_cores_of_a_mask_change_neither_platform_nor_cell() -> None:
    spec = _spec(models="one", runtimes="onnx", threads=[1, 2])

    def keys(*cpus: int) -> list[tuple[str, str]]:
        plan = _make(spec, CARDS, DEVICES, cores={"box": DeviceCores(one_per_core=cpus)})
        return [(cell.platform_key, cell.cell_key) for cell in plan.cells]

    assert keys(2, 3) == keys(0, 1) == keys(0, 2)
    assert keys(2, 3)[1][0] == "box/onnx/cpu/eager/fp32/b1/t2/afirst_cores/{}"


@pytest.mark.parametrize(("affinity", "why"), [([4], "too few for 2"), ([4, 4], "twice")])
def test_a_list_of_cpus_that_does_not_fit_the_threads_is_refused(affinity, why) -> None:
    with pytest.raises(UsageError, match=f"key 'affinity'.*{why}"):
        _plan(threads=[1, 2], affinity=affinity)


def test_a_model_is_measured_in_its_own_precisions_and_others_in_those_of_the_sweep() -> None:
    plan = _plan(runtimes="onnx", precision="fp32", precision_of={"two": ["int8", "fp32"]})
    found = {(cell.export.card.name, str(cell.export.precision)) for cell in plan.cells}
    assert found == {("one", "fp32"), ("two", "int8"), ("two", "fp32"), ("three", "fp32")}


def test_weights_are_seeded_unless_a_model_has_its_own() -> None:
    plan = _plan(runtimes="onnx", weights_of={"two": "pretrained"})
    kinds = {cell.export.card.name: cell.export.weights.kind for cell in plan.cells}
    assert kinds == {
        "one": WeightsKind.SEEDED,
        "two": WeightsKind.PRETRAINED,
        "three": WeightsKind.SEEDED,
    }


def test_another_sweep_seed_makes_no_other_cells() -> None:
    assert _plan(seed=1).cells == _plan(seed=2).cells
    assert list(_plan(seed=1).order(0)) != list(_plan(seed=2).order(0))


def test_a_users_file_is_skipped_in_other_runtimes_with_the_reason(tmp_path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(b"x")
    mine = replace(_card("mine"), source=Source.FILE, entry=str(path))
    plan = _make(_spec(models="mine"), {"mine": mine}, DEVICES)
    assert [cell.export.format for cell in plan.cells] == [Format.ONNX]
    assert plan.cells[0].export.weights.kind is WeightsKind.EMBEDDED
    assert len(plan.skipped) == 2
    assert all("runs in onnx only" in skipped.reason for skipped in plan.skipped)


def test_a_model_without_pretrained_weights_is_skipped_where_they_are_asked_for() -> None:
    bare = replace(_card("bare"), weights_tag=None)
    plan = _make(_spec(runtimes="onnx", weights="pretrained"), CARDS | {"bare": bare}, DEVICES)
    assert len(plan.cells) == 3
    (skipped,) = plan.skipped
    assert has(skipped.reason, "bare", "weights_tag")


def test_what_a_device_cannot_do_is_skipped_with_its_reason() -> None:
    plan = _make(
        _spec(models="one", runtimes="onnx", threads=[1, 8]),
        CARDS,
        DEVICES,
        why_unsupported=lambda device, execution: (
            f"{device} has 2 cores" if execution.threads > 2 else None
        ),
    )
    assert [cell.execution.threads for cell in plan.cells] == [1]
    assert [skipped.reason for skipped in plan.skipped] == ["box has 2 cores"]
    assert plan.skipped[0].label.startswith("one on box/onnx/")


@pytest.mark.parametrize(
    ("keys", "message", "remedy"),
    [
        ({"models": ["onne"]}, "'models': unknown model 'onne'", "did you mean 'one'?"),
        ({"models": ["onne", "two", "thre"]}, "model 'onne', 'thre'", "'one', 'three'"),
        ({"models": ["mobile_cn"]}, "'models'", "mobile_cnn"),
        ({"models": ["qqqqqq"]}, "'models'", "models list"),
        ({"weights_of": {"thre": "pretrained"}}, "'weights_of'", "three"),
        ({"models": "one", "weights_of": {"two": "pretrained"}}, "'weights_of'", ""),
        ({"precision_of": {"thre": "int8"}}, "'precision_of'", "three"),
        ({"devices": ["bx"]}, "device 'bx'", "box"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(keys, message, remedy) -> None:
    with pytest.raises(UsageError) as caught:
        _plan(**keys)
    assert message in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("pattern", "n_cells"), [("one", 6), ("t*", 12), ("*/onnx/*", 6), ("* on box/onnx/*/t2/*", 3)]
)
def test_a_pattern_narrows_a_plan(pattern, n_cells) -> None:
    plan = _plan(threads=[1, 2])
    assert len(narrow(plan, pattern).cells) == n_cells


@given(st.text("ab*[]?!-", max_size=9), st.text("ab\n[]?-", max_size=12))
def test_a_pattern_means_the_same_as_in_a_table(pattern: str, text: str) -> None:
    (expected,) = pl.DataFrame({"name": [text]}).select(matches("name", pattern))["name"]
    assert fits_text(pattern, text) == expected


def test_a_pattern_of_many_stars_is_matched_in_few_steps() -> None:
    """A backtracking expression takes hours."""
    with pytest.raises(UsageError, match="no cell matches"):
        narrow(_plan(), f"{'*e' * 40}*!")
    assert not fits_text("*a" * 2_000 + "*b*", "a" * 100_000)


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no cell matches"):
        narrow(_plan(), "four")


def test_the_estimate_takes_history_before_the_rule_and_the_slowest_device() -> None:
    # Start 0.5 s, 0.017 s for each of 10.4 million weights, the first inference of 1.7 GMACs, 1.5
    # times the warm-up of 0.5 s, and the limit of the timed part; then 0.2 s to the next repeat.
    plan = _plan(models=["one", "two"], runtimes="onnx", repeats=2, measure={"max_time_s": 6})
    rule_s = 0.5 + 0.017 * 10.4 + 1.7 / 30 + 0.75 + 6 + 0.2
    assert measuring_s(plan, {}, PLACES) == pytest.approx(2 * 2 * rule_s)
    known = {plan.cells[0].cell_key: 4.0}
    assert measuring_s(plan, known, PLACES) == pytest.approx(2 * (4.2 + rule_s))
    both = _plan(models="one", runtimes="onnx", repeats=1, devices=["box", "sim"])
    history = {cell.cell_key: 100.0 for cell in both.cells}
    assert measuring_s(both, history, PLACES) == pytest.approx(200.4), "they take turns"
    apart = PLACES | {"sim": DevicePlace(device="d", host="other", needs_quiet=False)}
    assert measuring_s(both, history, apart) == pytest.approx(100.2)
    assert measuring_s(replace(plan, cells=()), {}, PLACES) is None
    counting = {name: replace(place, counts_energy=True) for name, place in PLACES.items()}
    assert measuring_s(plan, {}, counting) == pytest.approx(2 * 2 * (rule_s + 2 * 2))
    # In rounds: 7.5 blocks of 0.4 s, each after two runs that are left out.
    turns = PLACES | {"box": replace(PLACES["box"], takes_turns=True)}
    turns_s = rule_s - 6 + 7.5 * (0.4 + 2 * 1.7 / 30)
    assert measuring_s(plan, {}, turns) == pytest.approx(2 * 2 * turns_s)


def test_a_precision_that_no_exporter_writes_is_skipped_with_those_that_it_writes() -> None:
    plan = _plan(models="one", precision=["fp32", "int8", "int4"], devices=["box"])
    assert {(c.execution.runtime, c.execution.precision) for c in plan.cells} == {
        ("onnx", "fp32"), ("onnx", "int8"), ("tflite", "fp32"), ("tflite", "int8"),
        ("torch", "fp32"),
    }  # fmt: skip
    assert {skipped.reason for skipped in plan.skipped} == {
        "pt2 cannot be exported in precision 'int8': eager PyTorch would compute it in fp32",
        *(
            f"{format_} cannot be exported in precision 'int4', only in {known}"
            for format_, known in (
                ("onnx", "fp32, fp16, int8, int8-s8s8 or int8-dynamic"),
                ("pt2", "fp32, fp16 or bf16"), ("tflite", "fp32, int8, int8-dynamic or w8a16"),
            )
        ),
    }  # fmt: skip


def test_language_models_have_recipes_of_their_own() -> None:
    model = resolve(load_language_zoo()["stories260k"])
    runtimes = ["onnx", "torch", "executorch"]
    spec = _spec(precision=["fp32", "int8", "int4"], runtimes=runtimes, devices=["box"])
    plan = make_plan(spec, [model], DEVICES)
    assert {(c.execution.runtime, c.execution.precision, c.export.recipe) for c in plan.cells} == {
        ("onnx", "fp32", None), ("onnx", "int8", "matmul-nbits8/1"),
        ("onnx", "int4", "matmul-nbits4/1"), ("torch", "fp32", None),
        ("executorch", "fp32", None), ("executorch", "int8", "8da8w/2"),
    }  # fmt: skip
    assert {one.reason for one in plan.skipped if "/executorch/" in one.label} == {
        "stories260k cannot be exported to pte in precision 'int4': weights are in groups of 32, "
        "which do not divide a width of 172"
    }


def test_a_recipe_is_part_of_the_identity_of_integers_only() -> None:
    model = resolve(load_zoo()["squeezenet1_1"])
    plain = ExportRequest(model=model, weights=Weights(), format=Format.ONNX)
    integers = replace(plain, precision=Precision.INT8)
    assert plain.recipe is None
    assert integers.recipe == "qdq-u8s8/1, 16 seeded"
    assert plain.key != integers.key


def test_a_device_that_opens_no_file_has_every_precision_of_a_known_cost() -> None:
    model = resolve(load_language_zoo()["stories260k"])
    spec = _spec(precision=["fp32", "bf16"], runtimes="onnx", devices=["sim", "box"])
    plan = make_plan(spec, [model], DEVICES)
    assert {(c.device, c.execution.precision) for c in plan.cells} == {
        ("sim", "fp32"), ("sim", "bf16"), ("box", "fp32"),
    }  # fmt: skip


def _file(name: str, precision: Precision | None) -> ResolvedCard:
    card = ModelCard(name=name, family=Family.OTHER, source=Source.FILE, entry=f"/{name}.onnx")
    return ResolvedCard(card=card, sha256=name, precision=precision)


def _precisions(models: list[ResolvedCard], **keys: object) -> set[tuple[str, str]]:
    plan = make_plan(_spec(runtimes="onnx", **keys), models, DEVICES)
    return {(cell.export.card.name, cell.execution.precision.value) for cell in plan.cells}


def test_a_file_is_measured_in_its_own_precision_and_a_network_in_fp32() -> None:
    models = [_file("half", Precision.FP16), _file("silent", None), resolve(CARDS["one"])]
    assert _precisions(models) == {("half", "fp16"), ("silent", "fp32"), ("one", "fp32")}


def test_of_several_precisions_a_file_has_only_its_own() -> None:
    models = [_file("half", Precision.FP16), _file("bytes", Precision.INT8)]
    spec = {"precision": ["fp16", "int8"], "runtimes": "onnx"}
    plan = make_plan(_spec(**spec), models, DEVICES)
    assert {(c.export.card.name, c.execution.precision) for c in plan.cells} == {
        ("half", "fp16"),
        ("bytes", "int8"),
    }
    assert {skipped.reason for skipped in plan.skipped} == {
        "half is a file in fp16",
        "bytes is a file in int8",
    }


def test_a_claim_that_a_file_contradicts_is_an_error_with_both_precisions() -> None:
    with pytest.raises(UsageError) as caught:
        _precisions([_file("half", Precision.FP16)], precision=["int8"])
    assert has(caught.value.message, "'precision'", "/half.onnx", "fp16", "int8")
    assert has(caught.value.remedy, "add fp16", "remove the key")


def test_a_claim_about_a_file_that_cannot_say_is_believed() -> None:
    assert _precisions([_file("silent", None)], precision=["int8"]) == {("silent", "int8")}


def _text(name: str, *axes: str, default: tuple[tuple[str, int], ...] = ()) -> ResolvedCard:
    one = CardInput(name="ids", shape=("batch", *axes), dtype="int64")
    card = ModelCard(
        name=name,
        family=Family.OTHER,
        source=Source.FILE,
        entry=f"/{name}.onnx",
        inputs=(one,),
        axes=default,
    )
    return ResolvedCard(card=card, sha256=name)


def test_every_size_of_a_named_axis_is_a_cell_of_the_models_that_have_it() -> None:
    models = [_text("text", "seq"), _text("speech", "time"), resolve(CARDS["one"])]
    spec = _spec(runtimes="onnx", batch=[1, 2], axes={"seq": [16, 32], "time": 5})
    cells = make_plan(spec, models, DEVICES).cells
    assert [(c.export.card.name, c.execution.batch, c.execution.axes) for c in cells] == [
        ("text", 1, (("seq", 16),)),
        ("text", 1, (("seq", 32),)),
        ("text", 2, (("seq", 16),)),
        ("text", 2, (("seq", 32),)),
        ("speech", 1, (("time", 5),)),
        ("speech", 2, (("time", 5),)),
        ("one", 1, ()),
        ("one", 2, ()),
    ]
    assert cells[3].execution.inputs[0].shape == (2, 32)
    assert cells[3].platform_key.endswith("/b2/t1/afirst_cores/{}/seq=32")
    assert cells[6].platform_key.endswith("/b1/t1/afirst_cores/{}")
    assert len({cell.cell_key for cell in cells}) == len(cells)


def test_a_card_s_default_size_counts_where_a_sweep_gives_none() -> None:
    models = [_text("text", "seq", default=(("seq", 99),))]
    assert [c.execution.axes for c in make_plan(_spec(runtimes="onnx"), models, DEVICES).cells] == [
        (("seq", 99),)
    ]


@pytest.mark.parametrize(
    ("axes", "words"),
    [({}, ("'seq'", "text", "size")), ({"seq": 1, "sec": 2}, ("'sec'",))],
)
def test_an_axis_without_a_size_or_without_a_model_is_an_error(axes, words) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(_spec(runtimes="onnx", axes=axes), [_text("text", "seq")], DEVICES)
    assert has(caught.value.message, "'axes'", *words)
    assert "seq" in caught.value.remedy


def test_a_model_of_fixed_sizes_is_skipped_at_other_batches() -> None:
    one = CardInput(name="x", shape=(1, 4), dtype="float32")
    model = replace(_text("fixed"), card=replace(_text("fixed").card, inputs=(one,)))
    plan = make_plan(_spec(runtimes="onnx", batch=[1, 8]), [model], DEVICES)
    assert [cell.execution.batch for cell in plan.cells] == [1]
    assert has(plan.skipped[0].reason, "'batch'")


def test_disturbed_rounds_are_measured_again_only_with_rounds() -> None:
    with pytest.raises(ValueError, match="rounds"):
        _plan(hosts={"quiet": "retry"}, rounds=False)


def test_cells_that_can_meet_take_turns_unless_the_specification_says_off() -> None:
    pair = {"runtimes": "onnx", "models": ["one", "two"]}
    assert _plan(**pair).rounds == RoundRules()
    assert _plan(**pair, rounds={"cells": 2}).rounds == RoundRules(cells=2)
    assert _plan(models="one", runtimes="onnx", precision=["fp32", "int8"]).rounds is not None
    alone: list[dict[str, object]] = [
        {"rounds": False}, {"rounds": "off"}, {"rounds": None}, {"models": "one"},
        {"devices": "sim"}, {"measure": {"min_time_s": 9.0}},
    ]  # fmt: skip
    for keys in alone:
        assert _plan(**pair | keys).rounds is None, keys
    assert _plan(models="one", runtimes=["onnx", "torch"]).rounds is None, "of two platforms"
    stored = _spec(**pair, rounds=False).model_dump(mode="json")
    assert SweepSpec.model_validate(stored).rounds is None


def test_a_round_gets_half_of_a_small_device() -> None:
    spec = _spec(runtimes="onnx", devices=["box", "sim"])
    plan = _make(spec, CARDS, DEVICES, memory={"box": 2**30, "sim": 2**20})
    assert plan.rounds == RoundRules(memory_bytes=2**29)
