"""The inputs that model files state, compared with what the libraries of the formats read."""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from fleetrank.foundation.inputs import plain_input_name
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.inputs import AXIS_SUM, axis_names, sized
from fleetrank.models.errors import CardError
from fleetrank.models.file_inputs import inputs_of

Size = int | str | None
TESTS = Path(__file__).parents[2]


def _save(
    path: Path, shapes: Sequence[Sequence[Size] | None], kind: int = TensorProto.FLOAT
) -> Path:
    inputs = [helper.make_tensor_value_info(f"x{i}", kind, shape) for i, shape in enumerate(shapes)]
    graph = helper.make_graph([], "g", inputs, [])
    onnx.save(helper.make_model(graph), str(path))
    return path


def _shapes(tmp_path: Path, *shapes: Sequence[Size]) -> list[tuple[int | str, ...]]:
    return [one.shape for one in inputs_of(_save(tmp_path / "m.onnx", shapes), Format.ONNX)]


def test_free_axes_get_the_names_of_the_file(tmp_path: Path) -> None:
    assert _shapes(tmp_path, ["batch_size", "Seq Len", 4]) == [("batch", "seq_len", 4)]
    assert _shapes(tmp_path, ["time", "N", 4]) == [("time", "batch", 4)]
    assert _shapes(tmp_path, [None, 3, "h", "w"]) == [("batch", 3, "h", "w")]
    assert _shapes(tmp_path, ["s0", "s1"], ["s0", "s1"]) == [("batch", "s1")] * 2
    assert _shapes(tmp_path, [1, None]) == [(1, "x0_1")]
    assert _shapes(tmp_path, [], [2, 3]) == [(), (2, 3)]


def test_names_that_a_card_would_refuse_or_confuse_are_changed(tmp_path: Path) -> None:
    (shape,) = _shapes(tmp_path, ["n", "0", "A+1", "a 1", "é", "x" * 50, "y" * 50, "x" * 51])
    assert shape[0] == "batch"
    assert len(set(shape)) == len(shape)
    assert shape[2] == "a + 1", "it is computed"
    assert all(re.fullmatch(AXIS_SUM, str(name)) for name in shape)


PAST = "past_sequence_length"


@pytest.mark.parametrize(
    ("shapes", "axes", "sizes"),
    [
        ([["b", f"{PAST} + 1"], ["b", PAST]], {PAST: 5}, [(2, 6), (2, 5)]),
        ([["b", f"{PAST} + 1"], ["b", PAST]], {PAST: 0}, [(2, 1), (2, 0)]),
        ([[f"{PAST}+sequence_length"], [PAST]], {PAST: 5, "sequence_length": 3}, [(8,), (5,)]),
        ([["batch_size*heads", "Seq Len"]], {"heads": 4, "seq_len": 7}, [(8, 7)]),
        ([["1 + seq", "2*seq + 1"], ["seq - 1"]], {"seq": 4}, [(5, 9), (3,)]),
        ([["seq"], ["seq-1"], ["past-seq"]], {"seq": 4, "past_seq": 3}, [(4,), (3,), (3,)]),
        ([["total - past", "past"]], {"total": 9, "past": 3}, [(6, 3)]),
        ([["Past", "past"]], {"past": 3, "past_2": 4}, [(4, 3)]),
        ([["seq-1", "w-h"]], {"seq_1": 3, "w_h": 4}, [(3, 4)]),
        ([["decoder_sequence_length_of_the_whole_text"]],
         {"decoder_sequence_length_of_the_whole_text": 3}, [(3,)]),
    ],
)  # fmt: skip
def test_a_size_that_follows_from_others_is_computed_and_plain_names_win(
    tmp_path: Path, shapes: list[list[str]], axes: dict[str, int], sizes: list[tuple[int, ...]]
) -> None:
    inputs = inputs_of(_save(tmp_path / "m.onnx", shapes), Format.ONNX)
    assert axis_names(inputs) == tuple(sorted(axes))
    found = sized(inputs, tuple(sorted(axes.items())), 2, {})
    assert [one.shape for one in found] == sizes


@given(
    shapes=st.lists(st.lists(st.integers(1, 2**40), max_size=6), min_size=1, max_size=4),
    kind=st.sampled_from([TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL]),
)
def test_fixed_sizes_types_and_order_are_those_of_the_library(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]], kind: int
) -> None:
    path = _save(tmp_path_factory.mktemp("m") / "m.onnx", shapes, kind)
    graph = onnx.load(str(path)).graph
    expected = [
        (
            value.name,
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in graph.input
    ]
    assert [(one.name, one.shape, one.dtype) for one in inputs_of(path, Format.ONNX)] == expected


def test_weights_among_the_inputs_are_left_out(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [[1], [2]])
    model = onnx.load(str(path))
    model.graph.initializer.append(helper.make_tensor("x1", TensorProto.FLOAT, [2], [1.0, 2.0]))
    onnx.save(model, str(path))
    assert [one.name for one in inputs_of(path, Format.ONNX)] == ["x0"]


def test_text_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="x0"):
        inputs_of(_save(tmp_path / "m.onnx", [[1]], TensorProto.STRING), Format.ONNX)


TFLITE = ("models/data/uint8.tflite", "../models/networks/primer.tflite", "models/data/fp16.tflite",
          "device_agents/data/tiny.tflite")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", TFLITE)
def test_tflite_inputs_are_those_of_the_interpreter(path: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    details = litert.Interpreter(model_path=str(TESTS / path)).get_input_details()
    expected = [
        (
            plain_input_name(one["name"]),
            [int(size) for size in one["shape_signature"]],
            np.dtype(one["dtype"]).name,
        )
        for one in details
    ]
    found = inputs_of(TESTS / path, Format.TFLITE)
    assert [(one.name, _with_minus(one.shape), one.dtype) for one in found] == expected


@pytest.mark.thorough
@pytest.mark.slow
def test_pte_inputs_are_those_of_the_runtime() -> None:
    runtime = pytest.importorskip("executorch.runtime")
    path = TESTS / "device_agents/data/tiny.pte"
    meta = runtime.Runtime.get().load_program(path).load_method("forward").metadata
    (found,) = inputs_of(path, Format.PTE)
    assert found.shape == tuple(meta.input_tensor_meta(0).sizes())
    assert (found.name, found.dtype, meta.num_inputs()) == ("input_0", "float32", 1)


@pytest.mark.slow
def test_pt2_inputs_are_those_of_the_program_and_share_their_free_sizes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, ids, mask):  # type: ignore[no-untyped-def]
            return (ids * mask).sum(1).float()

    batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq", min=2)
    examples = torch.zeros(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.bool)
    free = ({0: batch, 1: seq},) * 2
    program = torch.export.export(Net(), examples, dynamic_shapes=free)
    torch.export.save(program, tmp_path / "net.pt2")
    found = inputs_of(tmp_path / "net.pt2", Format.PT2)
    assert [(one.name, one.shape, one.dtype) for one in found] == [
        ("ids", ("batch", "ids_1"), "int64"), ("mask", ("batch", "ids_1"), "bool"),
    ]  # fmt: skip


def _with_minus(shape: Sequence[int | str]) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in shape]


@pytest.mark.parametrize(
    ("first", "axis"),
    [
        ("n_samples", "n_samples"), ("n_nodes", "n_nodes"), ("time", "time"), ("points", "points"),
        ("N", "batch"), ("batch_size", "batch"), ("text_batch", "batch"), ("unk__42", "batch"),
        ("s77", "batch"), ("wave_dynamic_axes_1", "batch"), ("", "batch"), ("wave_0", "batch"),
    ],
)  # fmt: skip
def test_only_an_axis_without_a_name_of_its_own_is_taken_for_the_batch(
    tmp_path: Path, first: str, axis: str
) -> None:
    import onnx

    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, [first, 4]) for name in ("wave", "y")]
    node = helper.make_node("Identity", ["wave"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=9).SerializeToString())
    (found,) = inputs_of(path, Format.ONNX)
    assert found.shape == (axis, 4)


@pytest.mark.parametrize(
    ("dynamic", "sizes"),
    [
        (["seq", "past", "past + seq"], ["x_1", "past_1", "past_1 + x_1"]),
        (["seq", "seq - 1", "2*seq"], ["x_1", "x_1 - 1", "2 * x_1"]),
        (["2*seq + 1", "seq", 5], ["2 * past_1 + 1", "past_1", 5]),
        (["seq//2", "seq//2", "seq"], ["x_1", "x_1", "mask_1"]),
    ],
)
def test_sizes_of_a_pt2_are_computed_from_its_symbols(
    tmp_path: Path, dynamic: list[str | int], sizes: list[str | int]
) -> None:
    sympy = pytest.importorskip("sympy")
    symbols = {name: sympy.Symbol(name, positive=True, integer=True) for name in ("seq", "past")}
    names = ("x", "past", "mask")
    values = {
        name: {
            "dtype": 7,
            "sizes": [
                {"as_int": 2},
                {"as_int": size}
                if isinstance(size, int)
                else {"as_expr": {"expr_str": sympy.srepr(sympy.sympify(size, symbols))}},
            ],
        }
        for name, size in zip(names, dynamic, strict=True)
    }
    arguments = [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in names]
    program = {
        "graph_module": {
            "graph": {"tensor_values": values, "nodes": []},
            "signature": {"input_specs": arguments, "output_specs": []},
        }
    }
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("m/models/model.json", json.dumps(program))
    found = inputs_of(tmp_path / "m.pt2", Format.PT2)
    assert [one.shape for one in found] == [(2, size) for size in sizes]


def test_a_difference_below_zero_is_refused(tmp_path: Path) -> None:
    inputs = inputs_of(_save(tmp_path / "m.onnx", [["b", "seq - 4"]]), Format.ONNX)
    assert [one.shape for one in sized(inputs, (("seq", 4),), 1, {})] == [(1, 0)]
    with pytest.raises(CardError, match="below 0"):
        sized(inputs, (("seq", 3),), 1, {})
