"""Published checkpoints: the same outputs as the library that wrote them, and bad folders."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from daily import daily
from language_shapes import ENCODERS, LLAMA, SHAPES
from published_models import KINDS, save_published
from wording import has

from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import Weights
from fleetrank.models.cards.inputs import sized
from fleetrank.models.cards.language import LanguageShape, language_inputs
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.decoder import Decoder
from fleetrank.models.networks.encoder import Encoder
from fleetrank.models.networks.weights import load_checkpoint, network_with_weights
from fleetrank.models.published import INDEX, WHOLE, checkpoint_sha256, load_folder

pytestmark = pytest.mark.usefixtures("without_gradients")
SMALL = {name: (KINDS[name], shape) for name, shape in {**SHAPES, **ENCODERS}.items()}
ZOO_KINDS = {
    "stories15m": "llama",
    "smollm-135m": "llama",
    "qwen2.5-0.5b": "qwen2",
    "gpt2": "gpt2",
    "opt-125m": "opt",
    "opt-350m": "opt",
    "pythia-70m": "gpt_neox",
    "minilm-l6": "bert",
    "distilbert": "distilbert",
}
ZOO = {
    name: (kind, replace(load_language_zoo()[name].language, layers=2, vocabulary=999, context=64))
    for name, kind in ZOO_KINDS.items()
}
"""Published sizes with two layers and a short vocabulary."""


def built(shape: LanguageShape) -> torch.nn.Module:
    torch.manual_seed(7)
    return (Encoder if shape.is_encoder else Decoder)(shape).eval()


def outputs(network: torch.nn.Module, shape: LanguageShape, tokens: torch.Tensor) -> torch.Tensor:
    if shape.is_encoder:
        return network(tokens)
    batch, length = tokens.shape
    size = (batch, shape.kv_heads, length, shape.head_size)
    caches = [torch.zeros(size) for _ in range(2 * shape.layers)]
    return network(tokens, torch.arange(length), *caches)[0]


@pytest.mark.parametrize(
    ("kind", "shape"),
    daily([*SMALL.values(), *ZOO.values()], *SMALL.values()),
    ids=[*SMALL, *(f"{name} of the zoo" for name in ZOO)],
)
def test_outputs_are_those_of_the_library(kind: str, shape: LanguageShape, tmp_path: Path) -> None:
    model = save_published(kind, shape, tmp_path)
    network = built(shape)
    load_folder(network, shape, tmp_path)
    tokens = torch.randint(3, shape.vocabulary, (2, 21))
    wanted = model(tokens, attention_mask=torch.ones_like(tokens))
    wanted = wanted.last_hidden_state if shape.is_encoder else wanted.logits[:, -1]
    found = outputs(network, shape, tokens)
    assert float(wanted.std()) > 0.01
    assert float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-5


def test_several_files_give_the_same_weights_as_one(tmp_path: Path) -> None:
    save_published("llama", LLAMA, tmp_path / "one")
    save_published("llama", LLAMA, tmp_path / "many", max_shard_size="10KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    assert not (tmp_path / "many" / WHOLE).exists()
    networks = []
    for name in ("one", "many"):
        networks.append(built(LLAMA))
        load_folder(networks[-1], LLAMA, tmp_path / name)
    one, many = (network.state_dict() for network in networks)
    assert one.keys() == many.keys()
    assert all(torch.equal(one[name], many[name]) for name in one)


@pytest.mark.parametrize("name", ["llama", "opt", "bert", "gpt"])
def test_a_prefix_may_be_left_out_and_heads_of_other_tasks_are_skipped(
    name: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    kind, shape = SMALL[name]
    save_published(kind, shape, tmp_path)
    network = built(shape)
    load_folder(network, shape, tmp_path)
    state = load_file(tmp_path / WHOLE)
    prefixes = {"llama": "model.", "opt": "model.", "bert": "bert.", "gpt": "transformer."}
    prefix = prefixes[name]
    other = {
        key.removeprefix(prefix) if key.startswith(prefix) else prefix + key: value
        for key, value in state.items()
    }
    extra = {"llama": "layers.0.self_attn.rotary_emb.inv_freq", "opt": "lm_head.weight",
             "bert": "cls.predictions.bias", "gpt": "h.0.attn.bias"}[name]  # fmt: skip
    if name == "bert":
        other = {
            key.replace("LayerNorm.weight", "LayerNorm.gamma"): value
            for key, value in other.items()
        }
    save_file({**other, extra: torch.zeros(3)}, tmp_path / WHOLE)
    again = built(shape)
    load_folder(again, shape, tmp_path)
    for one, two in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_stored_types_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_published("llama", LLAMA, tmp_path)
    state = {name: value.to(dtype) for name, value in load_file(tmp_path / WHOLE).items()}
    save_file(state, tmp_path / WHOLE)
    network = built(LLAMA)
    load_folder(network, LLAMA, tmp_path)
    wanted = state["model.layers.1.mlp.down_proj.weight"].float()
    assert torch.equal(network.state_dict()["blocks.1.feed.down.weight"], wanted)


def refusal(folder: Path, shape: LanguageShape = LLAMA) -> str:
    network = built(shape)
    before = [parameter.clone() for parameter in network.parameters()]
    with pytest.raises(ExportError) as caught:
        load_folder(network, shape, folder)
    assert caught.value.remedy
    for one, two in zip(before, network.parameters(), strict=True):
        assert torch.equal(one, two)
    return caught.value.message


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    save_published("llama", LLAMA, folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 64),
        ("num_hidden_layers", 3),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 16),
        ("intermediate_size", 47),
        ("vocab_size", 100),
        ("max_position_embeddings", 47),
        ("rms_norm_eps", 1e-6),
        ("hidden_act", "gelu"),
        ("tie_word_embeddings", False),
        ("attention_bias", True),
        ("mlp_bias", "yes"),
        ("rope_scaling", {"rope_type": "yarn"}),
        ("rope_parameters", {"rope_theta": 5e5}),
        ("vocab_size", "101"),
    ],
)
def test_a_config_that_disagrees_is_refused_by_its_key(
    key: str, value: object, folder: Path
) -> None:
    change(folder, key, value)
    named = {"rope_scaling": "rope_type", "rope_parameters": "rope_theta"}.get(key, key)
    assert f"'{named}'" in refusal(folder)


def change(folder: Path, key: str, value: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))


def test_a_longer_context_in_the_config_agrees(folder: Path) -> None:
    change(folder, "max_position_embeddings", 4096)
    load_folder(built(LLAMA), LLAMA, folder)


@pytest.mark.parametrize(
    ("name", "older", "key"),
    [
        ("llama", {"rope_theta": 1e4, "rope_scaling": None}, "rope_theta"),
        ("neox", {"rotary_pct": 0.5, "rotary_emb_base": 10_000}, "rotary_pct"),
        ("neox", {"rotary_pct": 0.5, "rotary_emb_base": 10_000}, "rotary_emb_base"),
    ],
)
def test_a_config_in_the_older_form_is_read(
    name: str, older: dict[str, object], key: str, tmp_path: Path
) -> None:
    kind, shape = SMALL[name]
    save_published(kind, shape, tmp_path)
    change(tmp_path, "rope_parameters", None)
    for known, value in older.items():
        change(tmp_path, known, value)
    load_folder(built(shape), shape, tmp_path)
    change(tmp_path, key, 0.75)
    assert f"'{key}'" in refusal(tmp_path, shape)


@pytest.mark.parametrize("kind", ["gpt2", "opt", "mamba", 3, None])
def test_another_architecture_is_refused(kind: object, folder: Path) -> None:
    change(folder, "model_type", kind)
    assert "'model_type'" in refusal(folder)


def test_missing_and_unexpected_names_are_listed(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / WHOLE)
    state["model.layers.0.self_attn.q_norm"] = state.pop("model.norm.weight")
    save_file(state, folder / WHOLE)
    assert has(refusal(folder), "missing", "norm.weight", "unexpected", "q_norm")


def test_more_names_than_fit_are_counted(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"model.norm.weight": torch.ones(LLAMA.width)}, folder / WHOLE)
    n_missing = len(list(built(LLAMA).parameters())) - 1
    assert has(refusal(folder), "missing", f"{n_missing - 5} more")


def test_other_shapes_are_listed(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / WHOLE)
    state["model.layers.1.mlp.down_proj.weight"] = torch.zeros(48, 32)
    state["model.norm.weight"] = torch.zeros(32, dtype=torch.int64)
    save_file(state, folder / WHOLE)
    said = refusal(folder)
    assert has(said, "layers.1.mlp.down_proj.weight", "[48, 32]", "[32, 48]")
    assert has(said, "norm.weight", "I64")


def test_half_a_download_is_named(folder: Path) -> None:
    content = (folder / WHOLE).read_bytes()
    (folder / WHOLE).write_bytes(content[: len(content) // 2])
    assert has(refusal(folder), "model.safetensors", "not fully covered")
    (folder / WHOLE).write_bytes(content[:5])
    assert "header" in refusal(folder)


def test_a_folder_without_safetensors_is_refused(folder: Path) -> None:
    (folder / WHOLE).unlink()
    assert WHOLE in refusal(folder)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert "pytorch_model.bin" in refusal(folder)
    (folder / "config.json").unlink()
    assert "config.json" in refusal(folder)


def test_two_names_of_one_weight_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / WHOLE)
    state["norm.weight"] = torch.ones(LLAMA.width)
    save_file(state, folder / WHOLE)
    assert has(refusal(folder), "norm.weight", "twice")


def test_a_folder_is_the_weights_of_a_request_until_it_changes(folder: Path) -> None:
    card = replace(load_language_zoo()["stories260k"], language=LLAMA)
    weights = Weights(
        kind=WeightsKind.CHECKPOINT,
        checkpoint_path=str(folder),
        checkpoint_sha256=checkpoint_sha256(folder),
    )
    inputs = sized(language_inputs(LLAMA), Workload.parse("prefill@8").axes, 1, {})
    network, _ = network_with_weights(card, weights, is_trusted=False, inputs=inputs)
    wanted = built(LLAMA)
    load_folder(wanted, LLAMA, folder)
    assert torch.equal(network.norm.weight, wanted.norm.weight)
    (folder / "README.md").write_text("not part of the weights")
    assert checkpoint_sha256(folder) == weights.checkpoint_sha256
    change(folder, "hidden_size", 32.0)
    with pytest.raises(ExportError, match="changed"):
        network_with_weights(card, weights, is_trusted=False, inputs=inputs)


def test_a_network_of_images_takes_no_folder(folder: Path) -> None:
    weights = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_path=str(folder))
    with pytest.raises(ExportError) as caught:
        load_checkpoint(torch.nn.Linear(1, 1), weights)
    assert has(caught.value.message, "folder")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_published("llama", LLAMA, tmp_path, max_shard_size="10KB")
    return tmp_path


def test_a_missing_part_is_listed(sharded: Path) -> None:
    lost = sorted(sharded.glob("*.safetensors"))[1]
    lost.unlink()
    assert lost.name in refusal(sharded)


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", f"{'é' * 130}.safetensors"],
)
def test_an_index_cannot_name_files_elsewhere(name: str, sharded: Path) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert name[:30] in refusal(sharded)


@pytest.mark.parametrize("places", [None, [], {"a": 3}, "x"])
def test_an_index_without_places_is_refused(places: object, sharded: Path) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": places}))
    assert "weight_map" in refusal(sharded)


def test_an_index_that_names_a_lost_tensor_is_refused(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.lost"] = next(iter(index["weight_map"].values()))
    (sharded / INDEX).write_text(json.dumps(index))
    assert "model.lost" in refusal(sharded)
