"""What published checkpoints call the layers of a decoder or encoder, and how they store them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NORM_OF_OLD = {"gamma": "weight", "beta": "bias"}
"""Checkpoints converted from TensorFlow call scale and shift of a norm so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The names of one architecture.

    Attributes:
        modules: own name of a layer to theirs; `{}` is the number of the block.
        prefix: of their names; some files leave it out.
        fused: the layer of a block that holds queries, keys and values; `None` if each has its own.
        is_by_head: the fused layer has queries, keys and values of the first head, then of the
            second; otherwise all queries first.
        is_transposed: matrices of blocks are stored as inputs x outputs.
        skipped: pattern of names that are not needed: heads of other tasks, pooling, constants.
    """

    modules: Mapping[str, str]
    prefix: str
    fused: str | None = None
    is_by_head: bool = False
    is_transposed: bool = False
    skipped: str = ""

    def name_of(self, own: str) -> str:
        """Their name of a parameter, without the prefix."""
        module, _, kind = own.rpartition(".")
        found = re.fullmatch(r"blocks\.(\d+)\.(.+)", module)
        if found is None:
            return f"{self.modules[module]}.{kind}"
        number, inside = found.groups()
        if self.part_of(own) is not None:
            return f"{str(self.fused).format(number)}.{kind}"
        return f"{self.modules[inside].format(number)}.{kind}"

    def part_of(self, own: str) -> int | None:
        """0, 1 or 2 for queries, keys and values of a fused layer; `None` otherwise."""
        layer = own.split(".")[-2]
        return _QKV.index(layer) if self.fused is not None and layer in _QKV else None

    def plain(self, name: str) -> str:
        """A stored name without the prefix, and with today's names of norms."""
        module, _, kind = name.removeprefix(self.prefix).rpartition(".")
        return f"{module}.{_NORM_OF_OLD.get(kind, kind)}"

    def is_skipped(self, plain: str) -> bool:
        """Whether a stored value is not needed."""
        return bool(self.skipped) and re.fullmatch(self.skipped, plain) is not None


_QKV = ("queries", "keys", "values")
_LLAMA = Dialect(
    prefix="model.",
    modules={
        "embedding.tokens": "embed_tokens",
        "norm": "norm",
        "head": "lm_head",
        "attention_norm": "layers.{}.input_layernorm",
        "feed_norm": "layers.{}.post_attention_layernorm",
        "attention.queries": "layers.{}.self_attn.q_proj",
        "attention.keys": "layers.{}.self_attn.k_proj",
        "attention.values": "layers.{}.self_attn.v_proj",
        "attention.output": "layers.{}.self_attn.o_proj",
        "feed.gate": "layers.{}.mlp.gate_proj",
        "feed.up": "layers.{}.mlp.up_proj",
        "feed.down": "layers.{}.mlp.down_proj",
    },
    skipped=r"lm_head\.weight|.*rotary_emb\.inv_freq",
)
_GPT2 = Dialect(
    prefix="transformer.",
    modules={
        "embedding.tokens": "wte",
        "embedding.places": "wpe",
        "norm": "ln_f",
        "head": "lm_head",
        "attention_norm": "h.{}.ln_1",
        "feed_norm": "h.{}.ln_2",
        "attention.output": "h.{}.attn.c_proj",
        "feed.up": "h.{}.mlp.c_fc",
        "feed.down": "h.{}.mlp.c_proj",
    },
    fused="h.{}.attn.c_attn",
    is_transposed=True,
    skipped=r"lm_head\.weight|h\.\d+\.attn\.(bias|masked_bias)",
)
_OPT = Dialect(
    prefix="model.",
    modules={
        "embedding.tokens": "decoder.embed_tokens",
        "embedding.places": "decoder.embed_positions",
        "embedding.project": "decoder.project_in",
        "project": "decoder.project_out",
        "norm": "decoder.final_layer_norm",
        "head": "lm_head",
        "attention_norm": "decoder.layers.{}.self_attn_layer_norm",
        "feed_norm": "decoder.layers.{}.final_layer_norm",
        "attention.queries": "decoder.layers.{}.self_attn.q_proj",
        "attention.keys": "decoder.layers.{}.self_attn.k_proj",
        "attention.values": "decoder.layers.{}.self_attn.v_proj",
        "attention.output": "decoder.layers.{}.self_attn.out_proj",
        "feed.up": "decoder.layers.{}.fc1",
        "feed.down": "decoder.layers.{}.fc2",
    },
    skipped=r"lm_head\.weight",
)
_NEOX = Dialect(
    prefix="gpt_neox.",
    modules={
        "embedding.tokens": "embed_in",
        "norm": "final_layer_norm",
        "head": "embed_out",
        "attention_norm": "layers.{}.input_layernorm",
        "feed_norm": "layers.{}.post_attention_layernorm",
        "attention.output": "layers.{}.attention.dense",
        "feed.up": "layers.{}.mlp.dense_h_to_4h",
        "feed.down": "layers.{}.mlp.dense_4h_to_h",
    },
    fused="layers.{}.attention.query_key_value",
    is_by_head=True,
    skipped=r".*rotary_emb\.inv_freq|layers\.\d+\.attention\.(bias|masked_bias)",
)
_BERT = Dialect(
    prefix="bert.",
    modules={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.places": "embeddings.position_embeddings",
        "embedding.types": "embeddings.token_type_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "feed_norm": "encoder.layer.{}.output.LayerNorm",
        "attention.queries": "encoder.layer.{}.attention.self.query",
        "attention.keys": "encoder.layer.{}.attention.self.key",
        "attention.values": "encoder.layer.{}.attention.self.value",
        "attention.output": "encoder.layer.{}.attention.output.dense",
        "feed.up": "encoder.layer.{}.intermediate.dense",
        "feed.down": "encoder.layer.{}.output.dense",
    },
    skipped=r"pooler\..*|cls\..*|embeddings\.position_ids",
)
_DISTILBERT = Dialect(
    prefix="distilbert.",
    modules={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.places": "embeddings.position_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "feed_norm": "transformer.layer.{}.output_layer_norm",
        "attention.queries": "transformer.layer.{}.attention.q_lin",
        "attention.keys": "transformer.layer.{}.attention.k_lin",
        "attention.values": "transformer.layer.{}.attention.v_lin",
        "attention.output": "transformer.layer.{}.attention.out_lin",
        "feed.up": "transformer.layer.{}.ffn.lin1",
        "feed.down": "transformer.layer.{}.ffn.lin2",
    },
    skipped=r"vocab_.*|pre_classifier\..*|classifier\..*|embeddings\.position_ids",
)
DIALECTS: Mapping[str, Dialect] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "gpt2": _GPT2,
    "opt": _OPT,
    "gpt_neox": _NEOX,
    "bert": _BERT,
    "distilbert": _DISTILBERT,
}
"""By `model_type` of `config.json`."""
