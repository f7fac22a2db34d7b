"""A user's decoder must have the states that its card promises; what is missing is named."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from wording import has

from fleetrank.foundation.vocabulary import Family, Format
from fleetrank.foundation.workload import Workload, WorkloadKind
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import CardInput
from fleetrank.models.errors import ExportError
from fleetrank.models.export.user_file import stage_file

TFLITE = Path(__file__).parents[3] / "models/networks/primer.tflite"
ADDED = CardInput(name="added", shape=(1, "tokens"), dtype="float32")
SUMS = CardInput(name="sums", shape=(1, "context"), dtype="float32", state="next_sums")


def save_sums(path: Path, outputs: dict[str, list[int | str]], n_tokens: int | str = "n") -> None:
    """`next_sums = sums + the sum of added`, and `total` is the sum over `next_sums`."""
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["added"], ["all"], keepdims=0),
            helper.make_node("Add", ["sums", "all"], ["next_sums"]),
            helper.make_node("ReduceSum", ["next_sums"], ["total"], keepdims=1),
        ],
        "sums",
        [
            tensor("added", TensorProto.FLOAT, [1, n_tokens]),
            tensor("sums", TensorProto.FLOAT, [1, "slots"]),
        ],
        [tensor(name, TensorProto.FLOAT, sizes) for name, sizes in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(path))


def request(path: Path, *inputs: CardInput, workload: str = "decode@6") -> ExportRequest:
    card = ModelCard(
        name="mine",
        family=Family.GPT,
        source=Source.FILE,
        entry=str(path),
        input_size=None,
        inputs=inputs,
        workloads=(WorkloadKind.DECODE, WorkloadKind.GENERATE),
    )
    return ExportRequest(
        model=resolve(card),
        weights=Weights(),
        format=Format(path.suffix[1:]),
        workload=Workload.parse(workload),
    )


def refused(path: Path, folder: Path, *inputs: CardInput) -> ExportError:
    with pytest.raises(ExportError) as caught:
        stage_file(request(path, *inputs), folder, is_trusted=False)
    return caught.value


@pytest.mark.parametrize("sizes", [[1, 6], [1, "slots"]])
def test_a_decoder_with_its_states_is_taken_over(tmp_path: Path, sizes: list[int | str]) -> None:
    save_sums(tmp_path / "m.onnx", {"total": [1, 1], "next_sums": sizes})
    (tmp_path / "out").mkdir()
    staged = stage_file(
        request(tmp_path / "m.onnx", ADDED, SUMS), tmp_path / "out", is_trusted=False
    )
    assert staged.path.is_file()


def test_a_state_that_the_file_has_not_is_named(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx", {"total": [1, 1], "next_sums": [1, 6]})
    wrong = replace(SUMS, state="new_sums")
    said = refused(tmp_path / "m.onnx", tmp_path, ADDED, wrong)
    assert has(said.message, "total", "next_sums", "new_sums")
    assert said.remedy


def test_a_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx", {"total": [1, 1], "next_sums": [1, 6]})
    said = refused(tmp_path / "m.onnx", tmp_path, ADDED, replace(SUMS, state="total"))
    assert has(said.message, "'total'", "[1, 1]", "'sums'", "[1, 6]")


def test_a_tflite_file_without_states_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(TFLITE.read_bytes())
    said = refused(tmp_path / "m.tflite", tmp_path, ADDED, SUMS)
    assert has(said.message, "next_sums")


def test_one_file_for_prompts_and_steps_keeps_its_number_of_tokens_free(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx", {"total": [1, 1], "next_sums": [1, "slots"]})
    (tmp_path / "out").mkdir()
    asked = request(tmp_path / "m.onnx", ADDED, SUMS, workload="generate@4+2")
    staged = stage_file(asked, tmp_path / "out", is_trusted=False)
    tokens, cache = (
        [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in onnx.load(str(staged.path)).graph.input
    )
    assert (tokens, cache) == ([1, 0], [1, 6])


def test_a_fixed_number_of_tokens_cannot_generate(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx", {"total": [1, 1], "next_sums": [1, 6]}, n_tokens=4)
    asked = request(tmp_path / "m.onnx", ADDED, SUMS, workload="generate@4+2")
    with pytest.raises(ExportError) as caught:
        stage_file(asked, tmp_path, is_trusted=False)
    assert has(caught.value.message, "'added'", "4", "1")
