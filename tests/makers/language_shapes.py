"""Small shapes of every architecture of text that the zoo has."""

from dataclasses import replace

from fleetrank.models.cards.language import Activation, Bias, LanguageShape, Norm, Positions

LLAMA = LanguageShape(
    layers=2, width=32, heads=4, kv_heads=2, head_size=8, hidden=48, vocabulary=101, context=48
)
GPT = replace(
    LLAMA,
    kv_heads=4,
    norm=Norm.LAYER,
    positions=Positions.LEARNED,
    activation=Activation.GELU_TANH,
    bias=Bias.ALL,
)
OPT = replace(GPT, activation=Activation.RELU, position_offset=2)
SHAPES = {
    "llama": LLAMA,
    "qwen": replace(LLAMA, bias=Bias.QKV, rotary_base=1e6, norm_epsilon=1e-6),
    "untied": replace(LLAMA, is_tied=False, kv_heads=1),
    "gpt": GPT,
    "opt": OPT,
    "opt_post_norm": replace(OPT, norm_comes_first=False, embedding_width=16),
    "neox": replace(
        GPT,
        positions=Positions.ROTARY,
        rotary_share=0.5,
        activation=Activation.GELU,
        is_parallel=True,
        is_tied=False,
    ),
}
"""Decoders by architecture."""
BERT = replace(
    GPT,
    activation=Activation.GELU,
    token_types=2,
    norm_comes_first=False,
    norms_embedding=True,
    norm_epsilon=1e-12,
    is_encoder=True,
)
ENCODERS = {"bert": BERT, "distilbert": replace(BERT, token_types=0)}
"""Encoders by architecture."""
