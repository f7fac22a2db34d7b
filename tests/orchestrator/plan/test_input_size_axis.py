"""The axis `input_size`: one network at several heights and widths."""

from dataclasses import replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.foundation.vocabulary import Family, FlopsMethod
from fleetrank.models.cards.card import Cost, ModelCard, Source
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_cards, load_zoo
from fleetrank.models.networks.known_cost import known_cost
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import Cell, Plan
from fleetrank.orchestrator.plan.plan import make_plan, select_models
from fleetrank.orchestrator.row_making import _model_columns
from fleetrank.orchestrator.token_costs import token_costs
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

DEVICES = {"box": DeviceFile(name="box", kind="cpu")}


def _plan(models: list[str], cards: dict[str, ModelCard] | None = None, **keys: object) -> Plan:
    known = dict(load_cards(None).good) | (cards or {})
    spec = SweepSpec.model_validate(
        {"name": "s", "models": models, "devices": "box", "runtimes": "onnx"} | keys
    )
    return make_plan(spec, [resolve(one) for one in select_models(spec, known)], DEVICES)


def _sizes(plan: Plan) -> list[tuple[str, int | None]]:
    return sorted((c.export.card.name, c.export.card.input_size) for c in plan.cells)


def test_every_size_is_a_cell_of_its_own_platform() -> None:
    plan = _plan(["resnet18"], axes={"input_size": [160, 224, 288]})
    assert _sizes(plan) == [("resnet18", 160), ("resnet18", 224), ("resnet18", 288)]
    assert len({cell.platform_key for cell in plan.cells}) == 3
    assert len({cell.cell_key for cell in plan.cells}) == 3
    assert all(c.platform_key.endswith(f"/input_size={s}") for c, (_, s) in _pairs(plan))


def _pairs(plan: Plan) -> list[tuple[Cell, tuple[str, int | None]]]:
    return [(cell, (cell.export.card.name, cell.export.card.input_size)) for cell in plan.cells]


def test_its_own_size_shares_the_file_of_other_sweeps() -> None:
    usual = _plan(["resnet18"]).cells[0].export
    own, other = (cell.export for cell in _plan(
        ["resnet18"], axes={"input_size": [224, 288]}
    ).cells)  # fmt: skip
    assert own.key == usual.key
    assert other.key != usual.key


def test_a_card_without_the_axis_keeps_its_identity() -> None:
    card = load_zoo()["deit_tiny"]
    assert card.is_fixed_size
    assert resolve(card).sha256 == resolve(replace(card, is_fixed_size=False)).sha256


def test_models_of_a_fixed_size_are_skipped_with_the_reason() -> None:
    plan = _plan(["deit_tiny", "levit_128s"], axes={"input_size": [224, 288]})
    assert _sizes(plan) == [("deit_tiny", 224), ("levit_128s", 224)]
    first, second = sorted(one.reason for one in plan.skipped)
    assert has(first, "deit_tiny", "224")
    assert has(second, "levit_128s", "224")


def test_a_users_file_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.tflite").write_bytes(b"\0" * 32)
    mine = ModelCard(
        name="mine", family=Family.OTHER, source=Source.FILE,
        entry=str(tmp_path / "mine.tflite"), input_size=None,
    )  # fmt: skip
    plan = _plan(["mine"], {"mine": mine}, runtimes="tflite", axes={"input_size": 288})
    assert plan.cells == ()
    assert has(plan.skipped[0].reason, "mine", "file", "288")


def test_models_of_text_ignore_the_axis() -> None:
    plan = _plan(["stories15m", "resnet18"], axes={"input_size": 160}, workloads="decode@32")
    assert _sizes(plan) == [("resnet18", 160), ("stories15m", None)]
    assert plan.cells[0].execution.axes == ()


def test_without_an_image_model_the_axis_is_an_error() -> None:
    with pytest.raises(UsageError, match="axis 'input_size'"):
        _plan(["stories15m"], axes={"input_size": 160}, workloads="decode@32")


def test_published_accuracy_and_known_flops_belong_to_the_models_own_size() -> None:
    own, other = (c.export for c in _plan(["resnet18"], axes={"input_size": [224, 160]}).cells)
    assert own.card.accuracy_top1 is not None
    assert other.card.accuracy_top1 is None
    assert known_cost(own.card) is not None
    assert known_cost(other.card) is None
    assert token_costs(other.card.language, _plan(["resnet18"]).cells[0].execution) == ()


def test_a_stated_count_of_macs_is_not_used_at_another_size() -> None:
    stated = replace(load_zoo()["resnet18"], name="mine", macs=7, parameters=9)
    own, other = (
        c.export for c in _plan(["mine"], {"mine": stated}, axes={"input_size": [224, 160]}).cells
    )
    assert known_cost(own.card) == Cost(macs=7, parameters=9, method=FlopsMethod.FORMULA)
    assert known_cost(other.card) is None


def test_the_known_costs_name_the_size_of_every_built_in_network() -> None:
    assert all(known_cost(card) is not None for card in load_zoo().values())


def test_the_row_has_the_size_that_was_measured() -> None:
    cell = _plan(["resnet18"], axes={"input_size": 160}).cells[0]
    assert _model_columns(cell.export, None)["input_size"] == 160
