"""The built-in encoder of text: every token sees all tokens, without a cache."""

import torch
from torch import Tensor, nn

from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.networks.language_blocks import (
    AttentionBlock,
    LayerContext,
    TokenEmbedding,
    initialise,
    make_norm,
)


class Encoder(nn.Module):
    """An encoder without a pooling layer or a head."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(shape)
        self.blocks = nn.ModuleList(AttentionBlock(shape) for _ in range(shape.layers))
        self.norm = make_norm(shape) if shape.norm_comes_first else None
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """`tokens` (batch, tokens) to the vectors of the last layer, (batch, tokens, width)."""
        x = self.embedding(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x, _ = block(x, LayerContext())
        return x if self.norm is None else self.norm(x)
