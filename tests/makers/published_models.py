"""Models of the library `transformers`, with random weights, by the numbers of a shape."""

from pathlib import Path
from typing import Any

import torch

from fleetrank.models.cards.language import Activation, LanguageShape
from fleetrank.models.networks.build import import_torchvision

KINDS = {
    "llama": "llama", "untied": "llama", "qwen": "qwen2", "gpt": "gpt2", "opt": "opt",
    "opt_post_norm": "opt", "neox": "gpt_neox", "bert": "bert", "distilbert": "distilbert",
}  # fmt: skip
"""By name of a shape of `language_shapes`."""
_WORDS = {
    Activation.SWIGLU: "silu",
    Activation.GELU: "gelu",
    Activation.GELU_TANH: "gelu_new",
    Activation.RELU: "relu",
}


def save_published(kind: str, shape: LanguageShape, folder: Path, **options: object) -> Any:
    """Writes `config.json` and safetensors to the folder; returns the model."""
    model = make_published(kind, shape)
    model.save_pretrained(folder, **options)
    return model


def make_published(kind: str, shape: LanguageShape) -> Any:
    """A model whose parameters are all random, also biases, norms and padding."""
    import_torchvision()
    import transformers

    library: Any = transformers
    config, model = _MAKERS[kind](library, shape)
    torch.manual_seed(1)
    network = model(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.1 if parameter.ndim > 1 else 0.3)
    return network


def _usual(shape: LanguageShape) -> dict[str, object]:
    return {
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.hidden,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "hidden_act": _WORDS[shape.activation],
        "tie_word_embeddings": shape.is_tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def _llama(library: Any, shape: LanguageShape, kind: str = "Llama") -> tuple[Any, Any]:
    config = getattr(library, f"{kind}Config")(
        **_usual(shape),
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        rms_norm_eps=shape.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rotary_base},
    )
    return config, getattr(library, f"{kind}ForCausalLM")


def _qwen(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    return _llama(library, shape, "Qwen2")


def _gpt2(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    config = library.GPT2Config(
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_inner=shape.hidden,
        vocab_size=shape.vocabulary,
        n_positions=shape.context,
        bos_token_id=1,
        eos_token_id=2,
    )
    return config, library.GPT2LMHeadModel


def _opt(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    config = library.OPTConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        ffn_dim=shape.hidden,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.context,
        word_embed_proj_dim=shape.table_width,
        do_layer_norm_before=shape.norm_comes_first,
        pad_token_id=1,
    )
    return config, library.OPTForCausalLM


def _neox(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    config = library.GPTNeoXConfig(
        **_usual(shape),
        layer_norm_eps=shape.norm_epsilon,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": shape.rotary_base,
            "partial_rotary_factor": shape.rotary_share,
        },
    )
    return config, library.GPTNeoXForCausalLM


def _bert(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    config = library.BertConfig(
        **_usual(shape), type_vocab_size=shape.token_types, layer_norm_eps=shape.norm_epsilon
    )
    return config, library.BertModel


def _distilbert(library: Any, shape: LanguageShape) -> tuple[Any, Any]:
    config = library.DistilBertConfig(
        dim=shape.width,
        n_layers=shape.layers,
        n_heads=shape.heads,
        hidden_dim=shape.hidden,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.context,
    )
    return config, library.DistilBertModel


_MAKERS: dict[str, Any] = {
    "llama": _llama,
    "qwen2": _qwen,
    "gpt2": _gpt2,
    "opt": _opt,
    "gpt_neox": _neox,
    "bert": _bert,
    "distilbert": _distilbert,
}
