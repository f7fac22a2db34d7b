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
