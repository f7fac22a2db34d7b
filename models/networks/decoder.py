"""The built-in decoder of text: one module for all cards, with caches as inputs and outputs."""

import torch
from torch import Tensor, nn

from fleetrank.models.cards.language import LanguageShape, Positions
from fleetrank.models.networks.language_blocks import (
    AttentionBlock,
    LayerContext,
    TokenEmbedding,
    initialise,
    make_norm,
)


class Decoder(nn.Module):
    """A decoder with a static cache; `language_inputs` and `language_outputs` name its tensors."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.queries_per_key = shape.heads // shape.kv_heads
        self.embedding = TokenEmbedding(shape)
        self.blocks = nn.ModuleList(AttentionBlock(shape) for _ in range(shape.layers))
        self.norm = make_norm(shape) if shape.norm_comes_first else None
        is_other_width = shape.table_width != shape.width
        self.project = (
            nn.Linear(shape.width, shape.table_width, bias=False) if is_other_width else None
        )
        self.head = (
            None if shape.is_tied else nn.Linear(shape.table_width, shape.vocabulary, bias=False)
        )
        self.scores_every_token = False
        # No buffer: a conversion to fp16 would round the angles of late positions.
        self.frequencies = _frequencies(shape)
        initialise(self)

    def forward(self, tokens: Tensor, positions: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Reads tokens and gives the logits of the last one, or of every one.

        Args:
            tokens: (batch, tokens), below the vocabulary.
            positions: (tokens,), rising; also the slots of the cache that are written. A token sees
                the slots up to its own position.
            caches: keys and values of each layer in turn, (batch, kv_heads, context, head_size).

        Returns:
            Logits (batch, vocabulary), then the caches with the new keys and values. If
            `scores_every_token`, the logits are (batch, tokens, vocabulary).
        """
        view = LayerContext(
            rotation=self._rotation(positions, caches[0].dtype),
            mask=causal_mask(positions, self.queries_per_key, caches[0].shape[2], caches[0].dtype),
            rows=_rows(positions, caches[0]),
        )
        x = self.embedding(tokens, positions)
        written: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, view, (caches[2 * number], caches[2 * number + 1]))
            written.extend(cache)
        outcome = self._outcome(x if self.scores_every_token else x[:, -1])
        return (self._head(outcome), *written)

    def _outcome(self, x: Tensor) -> Tensor:
        """Vectors after the last block, as the head reads them, (..., table_width)."""
        x = x if self.norm is None else self.norm(x)
        return x if self.project is None else self.project(x)

    def _head(self, x: Tensor) -> Tensor:
        if self.head is not None:
            return self.head(x)
        return nn.functional.linear(x, self.embedding.tokens.weight)

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        if self.frequencies is None:
            return None
        angles = positions.float()[:, None, None] * self.frequencies
        return torch.cos(angles).to(dtype), torch.sin(angles).to(dtype)


def _frequencies(shape: LanguageShape) -> Tensor | None:
    """Angles per position, (rotated / 2,); `None` without rotary positions.

    Source: Su et al. 2021, equation 15.
    """
    if shape.positions is not Positions.ROTARY:
        return None
    rotated = int(shape.head_size * shape.rotary_share)
    return 1.0 / shape.rotary_base ** (torch.arange(0, rotated, 2).float() / rotated)


def causal_mask(
    positions: Tensor, queries_per_key: int, n_slots: int, dtype: torch.dtype
) -> Tensor:
    """What a token adds to its scores, (tokens x queries_per_key, n_slots).

    0 for slots up to its position, the lowest number for the others.
    """
    slots = torch.arange(n_slots, device=positions.device)
    lowest = torch.finfo(dtype).min
    zero = torch.zeros((), dtype=dtype, device=positions.device)
    own = positions[:, None].expand(-1, queries_per_key).reshape(-1, 1)
    return torch.where(slots <= own, zero, lowest)


def _rows(positions: Tensor, cache: Tensor) -> Tensor:
    batch, kv_heads, slots, _ = cache.shape
    first = torch.arange(batch * kv_heads, device=positions.device) * slots
    return (first.reshape(batch, 1, kv_heads) + positions[:, None]).flatten()
