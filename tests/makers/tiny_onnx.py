"""A network so small that it is exported, verified and measured in no time; weights beside it."""

from pathlib import Path

import numpy as np


def save_tiny_onnx(path: Path, height: int | str = 16) -> Path:
    """Writes a 3 x 3 convolution over 16 x 16 pixels; a name as height leaves it free."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, height, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, height, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def save_external(path: Path, location: str) -> Path:
    """An ONNX file whose weights lie in another file."""
    import onnx

    tensor = onnx.numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": "432"}.items():
        tensor.external_data.add(key=key, value=value)
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", real, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", real, [1, 4, 6, 6])],
        [tensor],
    )
    path.write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    return path


def save_rounded(path: Path, kernel: str) -> Path:
    """A file of int8 weights, whose convolution takes floats or integers."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = rng.integers(-63, 64, (4, 3, 3, 3)).astype(np.int8)
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.float32(0.02), "s"),
        numpy_helper.from_array(np.int8(0), "zs"),
        numpy_helper.from_array(np.uint8(128), "z"),
    ]
    back = helper.make_node("DequantizeLinear", ["w", "s", "zs"], ["wf"])
    around = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
        back,
        helper.make_node("Conv", ["xf", "wf"], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "s", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"]),
    ]
    stored_only = [back, helper.make_node("Conv", ["x", "wf"], ["y"])]
    graph = helper.make_graph(
        around if kernel == "integers" else stored_only,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 14, 14])],
        constants,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def save_looping(path: Path) -> Path:
    """A network that returns after 2^62 rounds of a loop."""
    from onnx import TensorProto, helper, numpy_helper

    def end(name: str, kind: int, shape: list[int]) -> object:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["going_out"]),
            helper.make_node("Add", ["value", "value"], ["value_out"]),
        ],
        "body",
        [
            end("round", TensorProto.INT64, []),
            end("going", TensorProto.BOOL, []),
            end("value", TensorProto.FLOAT, [1]),
        ],
        [end("going_out", TensorProto.BOOL, []), end("value_out", TensorProto.FLOAT, [1])],
    )
    values = [
        numpy_helper.from_array(np.array(2**62, dtype=np.int64), "rounds"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    ends = [end(name, TensorProto.FLOAT, [1]) for name in "xy"]
    return save_graph(path, "Loop", ["rounds", "yes", "x"], ends, values, body=body)


def save_huge(path: Path) -> Path:
    """A network that needs 8 GB for its one output."""
    from onnx import TensorProto, helper, numpy_helper

    sizes = [2, 1024, 1024, 1024]
    shape = numpy_helper.from_array(np.array(sizes, dtype=np.int64), "shape")
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes),
    ]
    return save_graph(path, "Expand", ["x", "shape"], ends, [shape])


def save_foreign(path: Path) -> Path:
    """A network with an operator that nobody has."""
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    return save_graph(path, "Teleport", ["x"], ends, [], domain="nowhere")


def save_graph(
    path: Path, operator: str, read: list[str], ends: list, values: list, **attributes: object
) -> Path:
    """A network of one operator from x to y, and constants."""
    import onnx

    node = onnx.helper.make_node(operator, read, ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], values)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("nowhere", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path
