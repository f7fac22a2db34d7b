"""An ONNX file whose weights lie in another file."""

from pathlib import Path

import numpy as np


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
