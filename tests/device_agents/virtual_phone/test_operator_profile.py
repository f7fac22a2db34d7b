"""The imitated profile: the file's own nodes, as LiteRT's reader of the file finds them."""

from pathlib import Path

import pytest
from adb_bench import TINY_TFLITE

from fleetrank.device_agents.android.programs.benchmark_model import read_operators
from fleetrank.device_agents.virtual_phone.imitation import inference
from fleetrank.device_agents.virtual_phone.imitation.inference import (
    nodes_of,
    profile_text,
    slowdown,
)

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")


def test_nodes_are_those_that_litert_finds() -> None:
    model = schema.ModelT.InitFromPackedBuf(TINY_TFLITE.read_bytes(), 0)
    graph = model.subgraphs[0]
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    expected = [
        (
            names[model.operatorCodes[one.opcodeIndex].builtinCode],
            tuple(graph.tensors[place].name.decode() for place in one.outputs),
        )
        for one in graph.operators
    ]
    assert [(node.type, node.outputs) for node in nodes_of(TINY_TFLITE)] == expected


def test_the_names_of_operators_are_litert_s() -> None:
    for code, name in inference._BUILTIN.items():
        assert getattr(schema.BuiltinOperator, name) == code


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\0TFL3 no tables", TINY_TFLITE.read_bytes()[:300]]
)
def test_a_file_without_operators_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no operators"):
        nodes_of(path)


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("delegate", [None, "TfLiteXNNPackDelegate", "TfLiteGpuDelegateV2"])
def test_the_text_is_read_again(delegate: str | None, is_old: bool) -> None:
    nodes, times_us = nodes_of(TINY_TFLITE), [20_000] * 30
    text = profile_text(nodes, times_us, delegate=delegate, slow={}, is_old=is_old)
    kernels = read_operators(text)
    assert sum(kernel.kernel_ns for kernel in kernels) == pytest.approx(0.98 * 20e6, rel=1e-3)
    is_one = delegate == "TfLiteGpuDelegateV2" and not is_old
    assert len(kernels) == (1 if is_one else len(nodes))


def test_a_slow_operator_makes_the_whole_slower() -> None:
    nodes = nodes_of(TINY_TFLITE)
    assert slowdown(nodes, {}) == 1.0
    assert 2.0 < slowdown(nodes, {"CONV_2D": 4.0}) < 4.0
    assert slowdown(nodes, {"ADD": 4.0}) == 1.0
