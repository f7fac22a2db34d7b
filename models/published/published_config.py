"""Compares `config.json` of a published model with the numbers of a card."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from fleetrank.models.cards.language import (
    Activation,
    Bias,
    LanguageShape,
    Norm,
    Positions,
)

_ACTIVATIONS = {
    Activation.SWIGLU: ("silu", "swish"),
    Activation.GELU: ("gelu",),
    Activation.GELU_TANH: ("gelu_new", "gelu_pytorch_tanh"),
    Activation.RELU: ("relu",),
}


_OLD_NAMES = {
    "type": "rope_type",
    "rotary_emb_base": "rope_theta",
    "rotary_pct": "partial_rotary_factor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """What one key of `config.json` must be.

    Attributes:
        of: the value that a card requires; a tuple holds several that mean the same.
        default: of the architecture, for files that leave the key out; `None`: the required one.
        is_least: a larger number agrees too.
    """

    of: Callable[[LanguageShape], object]
    default: object = None
    is_least: bool = False


def disagreement(
    config: Mapping[str, object], model_type: str, shape: LanguageShape
) -> tuple[str, object, object] | None:
    """The first key that disagrees: its name, what the file says, what the card needs.

    `None` if the file agrees. A key that the file leaves out has its architecture's default.
    """
    stated = _flat(config)
    for name, key in {**_COMMON[model_type], **_STRUCTURE[model_type]}.items():
        wanted = key.of(shape)
        found = stated.get(name)
        found = key.default if found is None else found
        if found is not None and not _agrees(found, wanted, is_least=key.is_least):
            older = (old for old, new in _OLD_NAMES.items() if new == name and old in config)
            return next(older, name), found, wanted
    return None


def _flat(config: Mapping[str, object]) -> dict[str, object]:
    """The keys, with those of the newer tables of rotary positions among them."""
    found = dict(config)
    for table in ("rope_parameters", "rope_scaling"):
        inner = config.get(table)
        if isinstance(inner, Mapping):
            found |= inner
    for old, new in _OLD_NAMES.items():
        found.setdefault(new, found.get(old))
    return found


def _agrees(found: object, wanted: object, *, is_least: bool) -> bool:
    if isinstance(wanted, tuple):
        return found in wanted
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return (is_least and found >= wanted) or math.isclose(found, wanted, rel_tol=1e-6)
    return found == wanted


def _sizes(names: Mapping[str, str], epsilon: str | None) -> dict[str, _Key]:
    """Keys that are one number of the card each."""
    keys = {theirs: _Key(of=attrgetter(own)) for theirs, own in names.items()}
    for context in ("max_position_embeddings", "n_positions"):
        if context in keys:
            keys[context] = _Key(of=attrgetter("context"), is_least=True)
    if epsilon is not None:
        keys[epsilon] = _Key(of=attrgetter("norm_epsilon"))
    return keys


def _is(value: object, default: object = None) -> _Key:
    return _Key(of=lambda _shape: value, default=default)


_USUAL = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "context",
}
_LLAMA = _sizes(_USUAL, "rms_norm_eps")
_COMMON: Mapping[str, Mapping[str, _Key]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "gpt2": _sizes(
        {
            "n_embd": "width",
            "n_layer": "layers",
            "n_head": "heads",
            "n_inner": "hidden",
            "vocab_size": "vocabulary",
            "n_positions": "context",
        },
        "layer_norm_epsilon",
    ),
    "opt": _sizes(
        {
            **{name: own for name, own in _USUAL.items() if own != "hidden"},
            "ffn_dim": "hidden",
            "word_embed_proj_dim": "table_width",
        },
        None,
    ),
    "gpt_neox": _sizes(_USUAL, "layer_norm_eps"),
    "bert": _sizes({**_USUAL, "type_vocab_size": "token_types"}, "layer_norm_eps"),
    "distilbert": _sizes(
        {
            "dim": "width",
            "n_layers": "layers",
            "n_heads": "heads",
            "hidden_dim": "hidden",
            "vocab_size": "vocabulary",
            "max_position_embeddings": "context",
        },
        None,
    ),
}
_ROTARY = {
    "rope_theta": _Key(of=attrgetter("rotary_base"), default=10_000.0),
    "rope_type": _is("default"),
    "partial_rotary_factor": _Key(of=attrgetter("rotary_share")),
}


def _words(activation: str, *, is_tied: bool) -> dict[str, _Key]:
    return {
        activation: _Key(of=lambda shape: _ACTIVATIONS[shape.activation]),
        "tie_word_embeddings": _Key(of=attrgetter("is_tied"), default=is_tied),
    }


_LLAMA_WORDS = {
    **_words("hidden_act", is_tied=False),
    **_ROTARY,
    "num_key_value_heads": _Key(of=attrgetter("kv_heads")),
    "head_dim": _Key(of=attrgetter("head_size")),
}
_ENCODER_WORDS = {"is_decoder": _is(value=False), "add_cross_attention": _is(value=False)}
_STRUCTURE: Mapping[str, Mapping[str, _Key]] = {
    "llama": {
        **_LLAMA_WORDS,
        "attention_bias": _Key(of=lambda shape: shape.bias is Bias.ALL, default=False),
        "mlp_bias": _Key(of=lambda shape: shape.bias is Bias.ALL, default=False),
    },
    "qwen2": {**_LLAMA_WORDS, "use_sliding_window": _is(value=False)},
    "gpt2": {
        **_words("activation_function", is_tied=True),
        "scale_attn_weights": _is(value=True),
        "scale_attn_by_inverse_layer_idx": _is(value=False),
    },
    "opt": {
        **_words("activation_function", is_tied=True),
        "do_layer_norm_before": _Key(of=attrgetter("norm_comes_first"), default=True),
        "_remove_final_layer_norm": _is(value=False),
        "enable_bias": _is(value=True),
        "layer_norm_elementwise_affine": _is(value=True),
    },
    "gpt_neox": {
        **_words("hidden_act", is_tied=False),
        **_ROTARY,
        "partial_rotary_factor": _Key(of=attrgetter("rotary_share"), default=0.25),
        "use_parallel_residual": _Key(of=attrgetter("is_parallel"), default=True),
        "attention_bias": _is(value=True),
    },
    "bert": {
        "hidden_act": _Key(of=lambda shape: _ACTIVATIONS[shape.activation]),
        "position_embedding_type": _is("absolute"),
        **_ENCODER_WORDS,
    },
    "distilbert": {"activation": _Key(of=lambda shape: _ACTIVATIONS[shape.activation])},
}


def fits(model_type: str, shape: LanguageShape) -> bool:
    """Whether a card has the structure that the architecture always has."""
    return all(getattr(shape, name) == value for name, value in _ALWAYS[model_type].items())


_OF_LLAMA = {"norm": Norm.RMS, "positions": Positions.ROTARY, "norm_comes_first": True,
             "is_parallel": False, "is_encoder": False, "embedding_width": None}  # fmt: skip
_OF_GPT = {"norm": Norm.LAYER, "positions": Positions.LEARNED, "bias": Bias.ALL,
           "is_parallel": False, "is_encoder": False}  # fmt: skip
_OF_BERT = {**_OF_GPT, "is_encoder": True, "norm_comes_first": False, "norms_embedding": True,
            "position_offset": 0}  # fmt: skip
_ALWAYS: Mapping[str, Mapping[str, object]] = {
    "llama": _OF_LLAMA,
    "qwen2": {**_OF_LLAMA, "bias": Bias.QKV},
    "gpt2": {**_OF_GPT, "norm_comes_first": True, "position_offset": 0},
    "opt": {**_OF_GPT, "position_offset": 2, "norm_epsilon": 1e-5},
    "gpt_neox": {"norm": Norm.LAYER, "positions": Positions.ROTARY, "bias": Bias.ALL,
                 "is_encoder": False, "norm_comes_first": True},
    "bert": _OF_BERT,
    "distilbert": {**_OF_BERT, "token_types": 0, "norm_epsilon": 1e-12},
}  # fmt: skip
