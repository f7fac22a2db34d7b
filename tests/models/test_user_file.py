"""Model files of the user: checked, made self-contained, never run."""

import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from wording import has

from fleetrank.foundation.vocabulary import FlopsMethod, Format, Precision
from fleetrank.models.cards.card import Cost, ExportRequest, StagedExport, external_data
from fleetrank.models.cards.identity import resolve
from fleetrank.models.errors import ExportError, UntrustedError
from fleetrank.models.export.user_file import stage_file
from fleetrank.models.tflite_types import tflite_scales

TFLITE = Path(__file__).parents[2] / "models/networks/primer.tflite"
DATA = Path(__file__).parent / "data"
COUNTED = Cost(macs=16, parameters=16, method=FlopsMethod.COUNTED)


@dataclass(frozen=True)
class Files:
    """The user's files in `root`, and what is made of them."""

    root: Path
    out_dir: Path
    request_of: Callable[[Path, Format], ExportRequest]

    def request(self, name: str, **keys: object) -> ExportRequest:
        """For a file; `keys` are those of its card."""
        suffix = Path(name).suffix[1:]
        format_ = Format(suffix) if suffix in {*Format} else Format.TFLITE
        request = self.request_of(self.root / name, format_)
        return replace(request, model=resolve(replace(request.card, **keys))) if keys else request

    def staged(self, name: str, as_: str = "fp32", **keys: object) -> StagedExport:
        request = replace(self.request(name, **keys), precision=as_)
        return stage_file(request, self.out_dir, is_trusted=False)

    def refused(self, name: str, content: bytes | None = None) -> ExportError:
        if content is not None:
            (self.root / name).write_bytes(content)
        with pytest.raises(ExportError) as caught:
            self.staged(name)
        assert caught.value.remedy
        assert not list(self.out_dir.iterdir())
        return caught.value


@pytest.fixture
def files(tmp_path: Path, file_request: Callable[[Path, Format], ExportRequest]) -> Files:
    for name in ("out", "models/sub"):
        (tmp_path / name).mkdir(parents=True)
    return Files(tmp_path / "models", tmp_path / "out", file_request)


def floats(name: str, sizes: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)


def saved(path: Path, *graph: object) -> None:
    opsets = [helper.make_opsetid("", 20)]
    made = helper.make_graph(graph[0], "g", *graph[1:])
    path.write_bytes(helper.make_model(made, opset_imports=opsets).SerializeToString())


def write_onnx(path: Path, location: str | None = None) -> None:
    weights = numpy_helper.from_array(np.ones((4, 4), dtype=np.float32), "w")
    if location is not None:
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)
        weights.ClearField("raw_data")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    saved(path, [node], [floats("x", [1, 4])], [floats("y", [1, 4])], [weights])


def test_onnx_file_is_taken_over_with_its_macs_and_parameters_counted(files: Files) -> None:
    write_onnx(files.root / "m.onnx")
    staged = files.staged("m.onnx")
    assert onnx.load(str(staged.path)).graph.node[0].op_type == "MatMul"
    assert staged.cost == COUNTED
    assert staged.reference_path is None


def test_parameters_of_a_quantised_onnx_file_are_its_weights_and_not_its_scales(
    files: Files,
) -> None:
    stored = {"w": np.ones((4, 4), np.int8), "s": np.ones(4, np.float32), "z": np.zeros(4, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], axis=1),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    saved(files.root / "m.onnx", nodes, [floats("x", [1, 4])], [floats("y", [1, 4])], weights)
    assert files.staged("m.onnx", "int8").cost == COUNTED


def test_onnx_external_data_ends_up_in_the_one_file(files: Files) -> None:
    write_onnx(files.root / "m.onnx", "m.onnx.data")
    np.full((4, 4), 7, dtype=np.float32).tofile(files.root / "m.onnx.data")
    staged = files.staged("m.onnx")
    (files.root / "m.onnx.data").unlink()
    weights = onnx.load(str(staged.path)).graph.initializer[0]
    assert numpy_helper.to_array(weights)[0, 0] == 7


def write_image_onnx(path: Path, sizes: list[int | str]) -> None:
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), dtype=np.float32), "w")
    ends = [floats("x", sizes)], [floats("y", ["N", 4, "h", "w"])]
    saved(path, [helper.make_node("Conv", ["x", "w"], ["y"])], *ends, [weights])


def test_an_image_whose_size_the_file_leaves_free_has_that_of_the_card(files: Files) -> None:
    write_image_onnx(files.root / "m.onnx", ["N", 3, "H", "W"])
    assert "dynamic height and width" in files.refused("m.onnx").message
    staged = files.staged("m.onnx", input_size=32)
    dims = onnx.load(str(staged.path)).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value or dim.dim_param for dim in dims] == ["N", 3, 32, 32]
    assert staged.cost.macs == 4 * 30 * 30 * 27


def test_free_sizes_that_are_no_images_are_refused(files: Files) -> None:
    write_image_onnx(files.root / "m.onnx", ["N", "C", "H", "W"])
    assert "dynamic dimensions" in files.refused("m.onnx").message


def test_onnx_external_data_elsewhere_is_refused(files: Files) -> None:
    secret = files.root.parent / "secret.bin"
    secret.write_bytes(bytes(64))
    (files.root / "linked.bin").symlink_to(secret)
    (files.root / "weights.bin").write_bytes(bytes(64))
    (files.root / "m.onnx.data").write_bytes(bytes(8))
    for location, *words in (
        ("../secret.bin", "../secret.bin", "outside the model's folder"),
        ("/etc/hostname", "/etc/hostname", "outside the model's folder"),
        ("sub/../../secret.bin", "sub/../../secret.bin", "outside the model's folder"),
        ("linked.bin", "outside the model's folder"),
        ("m.onnx_data", "m.onnx_data", "missing"),
        ("m.onnx.data", "too small"),
    ):
        write_onnx(files.root / "m.onnx", location)
        assert has(str(files.refused("m.onnx")), *words), location


def test_external_data_has_any_name_in_the_folder(files: Files) -> None:
    for location in ("weights.bin", "model.onnx_data_1", "layer.0.weight", "data/w.bin"):
        (files.root / location).parent.mkdir(exist_ok=True)
        np.full((4, 4), 7, dtype=np.float32).tofile(files.root / location)
        write_onnx(files.root / "m.onnx", location)
        assert list(external_data(files.root / "m.onnx")) == [location]
        assert files.staged("m.onnx").cost.macs == 16


def test_onnx_external_data_of_a_constant_is_watched_too(files: Files) -> None:
    np.full((4, 4), 7, dtype=np.float32).tofile(files.root / "weights.bin")
    write_onnx(files.root / "m.onnx")
    model = onnx.load(str(files.root / "m.onnx"))
    tensor = TensorProto(
        name="w", dims=[4, 4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="weights.bin")
    model.graph.ClearField("initializer")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    (files.root / "m.onnx").write_bytes(model.SerializeToString())
    assert list(external_data(files.root / "m.onnx")) == ["weights.bin"]
    (files.root / "weights.bin").unlink()
    assert "missing" in files.refused("m.onnx").message


def test_onnx_file_that_the_checker_refuses_is_not_called_damaged(files: Files) -> None:
    write_onnx(files.root / "m.onnx")
    model = onnx.load(str(files.root / "m.onnx"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    error = files.refused("m.onnx", model.SerializeToString())
    assert error.message.startswith("onnx.checker rejects")
    assert "shape" in error.message
    assert "external data" not in error.remedy


def archive(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/data/weights", bytes(range(200)))
    return path.read_bytes()


def test_a_file_that_is_none_of_its_format_or_damaged_is_refused(files: Files) -> None:
    flat, pt2 = TFLITE.read_bytes(), archive(files.root / "m.pt2")
    wild = bytearray(flat)
    struct.pack_into("<I", wild, 0, 0xFFFFFF00)
    for name, content, *words in (
        ("m.onnx", b"this is a text file\n", "m.onnx", "export it again"),
        ("m.onnx", b"", "m.onnx", "export it again"),
        *(("m.tflite", flat[: int(len(flat) * share)], "damaged") for share in (0.1, 0.5, 0.9)),
        ("m.tflite", bytes(wild), "damaged"),
        *(("m.tflite", text, "TFLite", "model") for text in (b"", b"text", b"a longer text file")),
        ("m.pt2", pt2, "say its precision", 'precision = "int8"'),  # no tables that a reader knows
        ("m.pt2", pt2.replace(b"\x10\x11\x12", b"\x10\x99\x12", 1), "match", "checksum"),
        ("m.pt2", b"text", "not a .pt2"),
        ("m.pte", b"this is no program", "not an ExecuTorch program"),
    ):
        assert has(str(files.refused(name, content)), *words), (name, content[:20])


def test_missing_file_is_named(files: Files) -> None:
    path = files.root / "m.onnx"
    path.write_bytes(b"1")
    request = files.request("m.onnx")
    path.unlink()
    with pytest.raises(ExportError) as caught:
        stage_file(request, files.out_dir, is_trusted=False)
    assert caught.value.message == f"{path} does not exist"


def test_other_files_are_taken_over_unchanged_and_not_opened(files: Files) -> None:
    unknown = Cost(macs=None, parameters=None, method=None)
    for name, content in (
        ("m.tflite", TFLITE.read_bytes()),
        ("m.pt2", archive(files.root / "m.pt2")),
        ("m.pte", b"\x30\0\0\0ET12 and the rest"),
    ):
        (files.root / name).write_bytes(content)
        staged = files.staged(name, precision=Precision.FP32)
        assert (staged.path.name, staged.path.read_bytes()) == (f"model.{name[2:]}", content)
        assert staged.cost == unknown


def test_what_is_converted_needs_trust(files: Files) -> None:
    (files.root / "m.keras").write_bytes(b"anything")
    shutil.copytree(DATA, files.root / "saved")
    for name in ("m.keras", "saved"):
        with pytest.raises(UntrustedError, match="`trust=true`"):
            files.staged(name)
    with pytest.raises(ExportError, match="not a SavedModel"):
        stage_file(files.request("saved"), files.out_dir, is_trusted=True)


def test_a_file_of_another_precision_than_the_request_is_refused(files: Files) -> None:
    content = (DATA / "fp16.tflite").read_bytes()
    assert has(files.refused("fp16.tflite", content).message, "fp16.tflite", "fp16", "not fp32")
    assert files.staged("fp16.tflite", "fp16").path.read_bytes() == content


def test_a_model_that_takes_text_is_refused_with_the_remedy(files: Files) -> None:
    words, y = (helper.make_tensor_value_info(n, TensorProto.STRING, [1]) for n in ("words", "y"))
    saved(files.root / "m.onnx", [helper.make_node("Identity", ["words"], ["y"])], [words], [y])
    assert has(str(files.refused("m.onnx")), "'words'", "text", "tokenizer")


@pytest.mark.parametrize(
    ("operator", "scales", "word"),
    [
        ("DequantizeLinear", [1.0, np.nan], "not a number"),
        ("DequantizeLinear", [1.0, np.inf], "infinite"),
        ("DequantizeLinear", [1.0, 0.0], "zero"),
        ("DequantizeLinear", [1.0, 1e-9], None),
        ("MatMulNBits", [-1.0, 0.0], None),
        ("MatMulNBits", [0.0, 0.0], "zero"),
    ],
)
def test_scales_without_a_meaning_are_refused_by_name(
    files: Files, operator: str, scales: list[float], word: str | None
) -> None:
    is_block = operator == "MatMulNBits"
    packed = np.ones((2, 1, 8), np.uint8) if is_block else np.ones((4, 2), np.int8)
    scale = numpy_helper.from_array(np.array(scales, np.float32), "s")
    if is_block:
        numbers = {"K": 16, "N": 2, "bits": 4, "block_size": 16}
        nodes = [
            helper.make_node(
                operator, ["x", "w", "s"], ["y"], "n", None, "com.microsoft", **numbers
            )
        ]
    else:
        nodes = [
            helper.make_node(operator, ["w", "s"], ["v"], axis=1),
            helper.make_node("MatMul", ["x", "v"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [floats("x", [1, 16 if is_block else 4])],
        [floats("y", [1, 2])],
        [numpy_helper.from_array(packed, "w"), scale],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(files.root / "m.onnx"))
    as_ = "int4" if is_block else "int8"
    if word is None:
        assert files.staged("m.onnx", as_).path.is_file()
    else:
        error = files.refused("m.onnx")
        assert f"scale 's' is {word}" in error.message


@pytest.mark.parametrize(("scale", "word"), [(np.nan, "not a number"), (0.0, "zero")])
def test_a_scale_of_a_tflite_file_is_refused_by_the_name_of_its_tensor(
    files: Files, scale: float, word: str
) -> None:
    good = (DATA / "uint8.tflite").read_bytes()
    name, scales = next(tflite_scales(good))
    bad = good.replace(struct.pack("<f", scales[0]), struct.pack("<f", scale))
    assert f"tensor {name!r} is {word}" in files.refused("m.tflite", bad).message
