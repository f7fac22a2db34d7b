from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import (
    CpuChoice,
    Family,
    Format,
    Mode,
    Precision,
    Runtime,
    WeightsKind,
)
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.keys import (
    RowKey,
    canonical_json,
    cell_key,
    platform_key,
    row_platform_key,
)

CARD = ModelCard(
    name="net", family=Family.HYBRID, source=Source.TIMM, entry="net", weights_tag="tag"
)
REQUEST = ExportRequest(model=resolve(CARD), weights=Weights(), format=Format.ONNX)
EXECUTION = Execution(runtime=Runtime.ONNX, backend="cpu", threads=2, affinity=(0, 1))


def _key(request: ExportRequest, platform: str = "p") -> str:
    return cell_key(request, platform)


def test_a_platform_reads_as_it_always_did() -> None:
    assert platform_key("box", EXECUTION) == "box/onnx/cpu/eager/fp32/b1/t2/a0,1/{}"
    other = Execution(
        runtime=Runtime.TORCH,
        backend="cpu",
        mode=Mode.COMPILE,
        precision=Precision.FP16,
        batch=8,
        options=(("a", 1), ("spinning", False)),
    )
    assert platform_key("box", other) == (
        'box/torch/cpu/compile/fp16/b8/t1/afree/{"a":1,"spinning":false}'
    )


def test_the_order_of_options_is_not_part_of_a_platform() -> None:
    one = replace(EXECUTION, options=(("a", 1), ("b", 2)))
    other = replace(EXECUTION, options=(("b", 2), ("a", 1)))
    assert platform_key("box", one) == platform_key("box", other)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": Runtime.TORCH}, {"backend": "xnnpack"}, {"mode": Mode.COMPILE},
        {"precision": Precision.INT8}, {"batch": 2}, {"threads": 1}, {"affinity": None},
        {"affinity": (1,)}, {"options": (("a", 1),)},
    ],
)  # fmt: skip
def test_every_part_of_an_execution_is_part_of_the_platform(change) -> None:
    assert platform_key("box", replace(EXECUTION, **change)) != platform_key("box", EXECUTION)


@pytest.mark.parametrize(
    "change",
    [
        {"format": Format.PT2},
        {"precision": "fp16"},
        {"batch": 2},
        {"weights": Weights(seed=1)},
        {"weights": Weights(kind=WeightsKind.PRETRAINED)},
        {"weights": Weights(kind=WeightsKind.CHECKPOINT, checkpoint_sha256="00")},
        {"model": resolve(replace(CARD, input_size=256))},
        {"model": resolve(replace(CARD, accuracy_top1=70.0))},
    ],
)
def test_model_weights_and_export_options_are_part_of_a_cell(change) -> None:
    assert _key(replace(REQUEST, **change)) != _key(REQUEST)


def test_the_platform_is_part_of_a_cell() -> None:
    assert _key(REQUEST, "p") != _key(REQUEST, "q")


def test_another_recipe_of_the_export_makes_other_cells(monkeypatch) -> None:
    before = _key(REQUEST)
    monkeypatch.setattr("fleetrank.models.cards.card._EXPORT_RECIPE", 999)
    assert _key(REQUEST) != before


def test_where_a_checkpoint_lies_is_not_part_of_a_cell() -> None:
    here = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_sha256="00", checkpoint_path="/a")
    there = replace(here, checkpoint_path="/b")
    assert _key(replace(REQUEST, weights=here)) == _key(replace(REQUEST, weights=there))


def test_a_cell_has_the_key_it_always_had() -> None:
    # Another key here makes every stored result a stranger to `sweep resume`: raise it on purpose.
    assert (
        resolve(CARD).sha256 == "8ef9b0514f6fe23cf8e346d43664fb95a875933cbe5924fdc52ff416f2896698"
    )
    assert _key(REQUEST, platform_key("box", EXECUTION)) == "243bda3d2b142116"


def test_first_cores_have_one_name_whatever_their_numbers_are() -> None:
    here = replace(EXECUTION, cpu_choice=CpuChoice.FIRST_CORES)
    there = replace(here, affinity=(2, 3))
    name = "box/onnx/cpu/eager/fp32/b1/t2/afirst_cores/{}"
    assert platform_key("box", here) == platform_key("box", there) == name


def test_listed_cpus_keep_their_numbers() -> None:
    listed = replace(EXECUTION, affinity=(2, 3), cpu_choice=CpuChoice.LISTED)
    name = "box/onnx/cpu/eager/fp32/b1/t2/a2,3/{}"
    assert platform_key("box", listed) == name


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_an_imported_rows_platform_reads_like_a_measured_one() -> None:
    row = {"device": "box", "runtime": "onnx", "backend": "cpu", "mode": "eager",
           "precision": "fp32", "batch": 1, "threads": 2, "affinity": "0,1",
           "options": "{}"}  # fmt: skip
    assert row_platform_key(row) == platform_key("box", EXECUTION)
    unknown = {name: row[name] for name in row if name not in {"threads", "affinity"}}
    assert row_platform_key(unknown | {"batch": None}) == "box/onnx/cpu/eager/fp32/b?/t?/afree/{}"


def test_the_key_of_a_row_has_the_columns_and_types_of_the_table() -> None:
    row = {"sweep_id": "s", "cell_key": "c", "repeat": 0, "attempt": 1, "model": "m"}
    key = RowKey.of(row)
    assert key == tuple(row[name] for name in ROW_KEY)
    assert RowKey._fields == ROW_KEY
    assert key.label == "cell c, repeat 1, attempt 2"
    for wrong in ({"repeat": "0"}, {"cell_key": None}, {"attempt": 1.0}):
        with pytest.raises(ValueError, match="not the key"):
            RowKey.of(row | wrong)
