import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.foundation.errors import FleetError
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import ValueRule, sized
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.errors import CardError
from fleetrank.orchestrator.cli.run_command import _hints
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.input_rules import axis_sizes
from fleetrank.orchestrator.workspace.model_argument import model_named
from fleetrank.orchestrator.workspace.workspace import Workspace

TESTS = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.init(tmp_path / "w")


def _file(folder: Path, name: str = "net.onnx", content: str = "a graph") -> Path:
    """An ONNX graph whose text is the content, under any suffix."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_onnx(content, [("x", TensorProto.FLOAT, [1, 4])]))
    return path


def _onnx(content: str, inputs: Sequence[tuple[str, int, list[int | str]]]) -> bytes:
    values = [helper.make_tensor_value_info(*one) for one in inputs]
    graph = helper.make_graph([], "g", values, [], doc_string=content)
    return bytes(helper.make_model(graph).SerializeToString())


def _cards(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in workspace.cards.iterdir())


def test_a_name_of_the_zoo_stays_and_writes_no_card(workspace: Workspace) -> None:
    assert model_named(workspace, "resnet18") == "resnet18"
    assert _cards(workspace) == []


def test_the_folder_of_a_language_model_has_the_card_with_its_numbers(
    workspace: Workspace, tmp_path: Path
) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 8,
        "num_key_value_heads": 4, "intermediate_size": 172, "vocab_size": 512, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    }  # fmt: skip
    folder = tmp_path / "my model"
    folder.mkdir()

    def named(**changed: object) -> str:
        (folder / "config.json").write_text(json.dumps(config | changed))
        return model_named(workspace, str(folder))

    assert named() == "stories260k"
    assert _cards(workspace) == []
    name = named(num_hidden_layers=7)
    assert name.startswith("my-model-")
    shape = load_cards(workspace.cards).find(name).language
    assert shape is not None
    assert (shape.layers, shape.head_size, shape.kv_heads) == (7, 8, 4)
    assert named(num_hidden_layers=7) == name
    for wrong, said in (
        ({"model_type": "mamba"}, "model_type"),
        ({"hidden_act": "tanh"}, "hidden_act"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type"),
        ({"num_hidden_layers": 10**6}, "layers"),
        ({"hidden_size": None}, "width"),
    ):
        with pytest.raises(FleetError, match=said) as caught:
            named(**wrong)
        assert ("optimum-cli export onnx" in str(caught.value)) == (said == "model_type")
    with pytest.raises(UsageError, match="inputs follow"):
        model_named(workspace, str(folder), ["tokens=normal"])


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".pt2", ".pte"])
def test_a_file_gets_a_card_that_names_it(
    workspace: Workspace, tmp_path: Path, suffix: str
) -> None:
    path = _file(tmp_path, f"net{suffix}")
    name = model_named(workspace, str(path))
    assert name.startswith("net-")
    assert load_cards(workspace.cards).find(name).entry == str(path)


def test_the_name_depends_on_the_content_and_not_on_the_folder(
    workspace: Workspace, tmp_path: Path
) -> None:
    here, there = _file(tmp_path / "a"), _file(tmp_path / "b")
    other = _file(tmp_path / "c", content="another graph")
    name = model_named(workspace, str(here))
    assert model_named(workspace, str(here)) == name
    assert model_named(workspace, str(there)) == name
    assert model_named(workspace, str(other)) != name
    assert len(_cards(workspace)) == 2
    assert load_cards(workspace.cards).find(name).entry == str(here)


def test_a_moved_file_keeps_its_name_and_what_a_person_added_to_its_card(
    workspace: Workspace, tmp_path: Path
) -> None:
    here = _file(tmp_path / "a")
    name = model_named(workspace, str(here))
    card = workspace.cards / f"{name}.toml"
    card.write_text(card.read_text().replace('"other"', '"transformer"'))
    there = tmp_path / 'b "quoted"\\'
    shutil.move(here.parent, there)
    assert model_named(workspace, str(there / here.name)) == name
    moved = load_cards(workspace.cards).find(name)
    assert (moved.entry, moved.family) == (str(there / here.name), "transformer")


def test_a_changed_file_gets_another_name(workspace: Workspace, tmp_path: Path) -> None:
    path = _file(tmp_path)
    before = model_named(workspace, str(path))
    _file(tmp_path, content="trained for longer")
    after = model_named(workspace, str(path))
    assert after != before
    assert model_named(workspace, str(path)) == after


def test_a_card_that_a_person_wrote_for_the_file_is_used(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = _file(tmp_path)
    (workspace.cards / "mine.toml").write_text(f'source = "file"\nentry = "{path}"\n')
    assert model_named(workspace, str(path)) == "mine"
    assert _cards(workspace) == ["mine.toml"]


def test_two_cards_of_one_file_need_a_name(workspace: Workspace, tmp_path: Path) -> None:
    path = _file(tmp_path)
    for name in ("one", "two"):
        (workspace.cards / f"{name}.toml").write_text(f'source = "file"\nentry = "{path}"\n')
    with pytest.raises(UsageError, match="one, two"):
        model_named(workspace, str(path))
    assert model_named(workspace, "two") == "two"


def test_a_card_of_the_same_name_is_not_overwritten(workspace: Workspace, tmp_path: Path) -> None:
    path = _file(tmp_path)
    name = model_named(workspace, str(path))
    card = workspace.cards / f"{name}.toml"
    other = _file(tmp_path / "other", "else.onnx", "else")
    card.write_text(f'source = "file"\nentry = "{other}"\n')
    before = card.read_bytes()
    with pytest.raises(UsageError, match=card.name):
        model_named(workspace, str(path))
    assert card.read_bytes() == before


@pytest.mark.parametrize(
    "name",
    [
        "-rf.onnx",
        "..onnx",
        "a b.onnx",
        "a\nentry = 'x'.onnx",
        'q"uo\\te.onnx',
        "\x1b[31m\x7f.onnx",
        "réseau-模型-\U0001f600.onnx",
        "x" * 240 + ".onnx",
        "NET.ONNX",
    ],
)
def test_a_hostile_file_name_makes_a_safe_card(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    path = _file(tmp_path / "files", name)
    given = model_named(workspace, str(path))
    assert len(given) < 80
    assert _cards(workspace) == [f"{given}.toml"]
    card = load_cards(workspace.cards).find(given)
    assert card.entry == str(path)
    assert resolve(card).sha256


def test_a_name_that_is_not_text_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx"))
    shutil.copy(_file(tmp_path), path)
    with pytest.raises(UsageError) as caught:
        model_named(workspace, str(path))
    assert "rename" in caught.value.remedy
    assert _cards(workspace) == []


def test_a_file_in_the_workspace_moves_with_it(workspace: Workspace, tmp_path: Path) -> None:
    path = _file(workspace.root / "nets")
    name = model_named(workspace, str(path))
    moved = tmp_path / "moved"
    workspace.root.rename(moved)
    assert load_cards(Workspace.at(moved).cards).find(name).entry == str(moved / "nets/net.onnx")


@pytest.mark.parametrize(
    "name", ["net.pth", "net.PT", "net.ckpt", "net.safetensors", "net", "folder"]
)
def test_a_file_of_another_format_is_refused_and_the_way_is_shown(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.write_bytes(b"x")
    with pytest.raises(FleetError) as caught:
        model_named(workspace, str(path))
    assert ".onnx" in caught.value.remedy
    ways = ("torch.export.save", "optimum-cli export onnx")
    assert all((way in caught.value.remedy) == (name != "net") for way in ways)
    assert _cards(workspace) == []


def test_what_is_neither_a_model_nor_a_file_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    with pytest.raises(CardError) as unknown:
        model_named(workspace, "resnet19")
    assert "resnet18" in unknown.value.remedy
    with pytest.raises(UsageError, match="does not exist"):
        model_named(workspace, str(tmp_path / "none.onnx"))
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(UsageError, match="pipe"):
        model_named(workspace, str(tmp_path / "pipe.onnx"))


_IDS = ("ids", TensorProto.INT64, ["batch", "seq"])


def test_free_axes_become_inputs_of_the_card(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "encoder.onnx"
    path.write_bytes(_onnx("", [_IDS, ("mask", TensorProto.BOOL, ["batch", "seq"])]))
    plain = model_named(workspace, str(path))
    card = load_cards(workspace.cards).find(plain)
    stated = [(one.name, one.shape, one.dtype) for one in card.inputs]
    assert stated == [("ids", ("batch", "seq"), "int64"), ("mask", ("batch", "seq"), "bool")]
    ruled = model_named(workspace, str(path), ["ids=ids:30522"])
    assert ruled != plain
    ids, mask = load_cards(workspace.cards).find(ruled).inputs
    assert (ids.values, mask.values) == (ValueRule(below=30522), None)
    assert model_named(workspace, str(path), ["ids=ids:30522"]) == ruled
    assert model_named(workspace, str(path)) == plain


@pytest.mark.parametrize("kind", ["UINT16", "UINT32", "UINT64"])
def test_an_unsigned_input_with_a_free_axis_has_a_card(
    workspace: Workspace, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx("", [("x", TensorProto.DataType.Value(kind), ["batch", "seq"])]))
    name = model_named(workspace, str(path), ["x=range:0,60000"])
    card = load_cards(workspace.cards).find(name)
    assert [one.dtype for one in card.inputs] == [kind.lower()]
    assert [array.dtype for array in make_inputs(sized(card.inputs, (("seq", 4),), 2, {}), 0)] == [
        kind.lower()
    ]


@pytest.mark.parametrize(
    ("shape", "sizes", "refused"),
    [
        ([8, 3, 4, 4], {}, "8"), ([8, 3, 4, 4], {"batch": [8]}, None), ([8, 4], {}, None),
        ([8, 4], {"batch": [8, 4]}, "8"), (["n", 3, 4, 4], {"batch": [4]}, None),
        ([1, 3, 4, 4], {}, None), ([1, 3, 4, 4], {"batch": [2]}, "1"),
    ],
)  # fmt: skip
def test_a_fixed_batch_is_named_before_anything_is_stored(
    workspace: Workspace, tmp_path: Path, shape, sizes, refused
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx("", [("x", TensorProto.FLOAT, shape)]))
    name = model_named(workspace, str(path))
    card = load_cards(workspace.cards).find(name)
    if refused is None:
        list(_hints(card, sizes))
        return
    with pytest.raises(UsageError, match="batch of") as caught:
        list(_hints(card, sizes))
    assert f"--axis batch={refused}" in caught.value.remedy


def test_a_free_batch_alone_needs_no_inputs(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx("", [("x", TensorProto.FLOAT, ["N", 3])]))
    name = model_named(workspace, str(path))
    assert load_cards(workspace.cards).find(name).inputs == ()


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        ("idz=ids:5", "ids"), ("ids", "ids"), ("ids=ids:many", "constant"),
        ("ids=ids:0", "constant"), ("ids=constant:0.5", "constant"), ("ids=normal", "constant"),
        ("ids=range:5", "range"), ("ids=range:9,1", "range"), ("ids=zeros", "constant"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_and_writes_no_card(
    workspace: Workspace, tmp_path: Path, rule: str, remedy: str
) -> None:
    path = tmp_path / "encoder.onnx"
    path.write_bytes(_onnx("", [_IDS]))
    with pytest.raises(UsageError) as caught:
        model_named(workspace, str(path), [rule])
    assert remedy in caught.value.remedy
    assert _cards(workspace) == []


@pytest.mark.parametrize(
    ("path", "rule", "expected"),
    [
        ("models/data/uint8.tflite", "constant:7", ("keras_tensor", ("batch", 8, 8, 3), "uint8")),
        ("device_agents/data/tiny.pte", "range:0,1", ("input_0", (1, 3, 16, 16), "float32")),
        ("data/pt2/tiny.pt2", "range:0,1", ("x", ("batch", 3, 4, 4), "float32")),
    ],
)
def test_a_rule_is_stated_in_the_card_of_every_format(
    workspace: Workspace, path: str, rule: str, expected: tuple[str, tuple[int | str, ...], str]
) -> None:
    name = model_named(workspace, str(TESTS / path), [f"{expected[0]}={rule}"])
    (stated,) = load_cards(workspace.cards).find(name).inputs
    assert (stated.name, stated.shape, stated.dtype) == expected
    assert stated.values is not None
    with pytest.raises(UsageError, match="no input 'other'"):
        model_named(workspace, str(TESTS / path), ["other=normal"])


def test_rules_are_for_files_that_state_inputs_and_have_no_card(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "bad.tflite").write_text("this is text")
    with pytest.raises(CardError, match=r"bad\.tflite"):
        model_named(workspace, str(tmp_path / "bad.tflite"), ["x=normal"])
    with pytest.raises(UsageError, match="conversion"):
        model_named(workspace, str(TESTS / "models/data/tiny.keras"), ["x=normal"])
    with pytest.raises(UsageError, match="resnet18"):
        model_named(workspace, "resnet18", ["x=normal"])


def test_a_file_that_is_no_onnx_model_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("this is text")
    with pytest.raises(CardError, match="onnx model"):
        model_named(workspace, str(tmp_path / "text.onnx"))
    assert _cards(workspace) == []


def test_sizes_of_axes_are_read() -> None:
    assert axis_sizes(["batch=1", "seq=128,512"]) == {"batch": [1], "seq": [128, 512]}
    assert axis_sizes(["past=0"]) == {"past": [0]}, "an empty cache"
    for wrong in (["seq"], ["=3"], ["seq=-1"], ["seq=1,,2"], ["seq=1", "seq=2"]):
        with pytest.raises(UsageError):
            axis_sizes(wrong)


@pytest.mark.parametrize(
    "stated",
    [
        ("x", TensorProto.BFLOAT16, ["batch", "seq"]),
        ("x\n", TensorProto.FLOAT, ["batch", "seq"]),
        ("x", TensorProto.FLOAT, [2**40, "seq"]),
    ],
)
def test_inputs_that_no_card_can_state_are_refused_before_a_card_is_written(
    workspace: Workspace, tmp_path: Path, stated: tuple[str, int, list[int | str]]
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx("", [stated]))
    with pytest.raises(UsageError, match="cannot be measured"):
        model_named(workspace, str(path))
    assert _cards(workspace) == []
