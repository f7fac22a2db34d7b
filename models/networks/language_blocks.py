"""Parts that decoders and encoders share: embedding, norms, attention, feed-forward, one block.

Attention and rotation are written as plain products, so that every exporter writes the same graph
and PyTorch's counter sees every product.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fleetrank.models.cards.language import Activation, Bias, LanguageShape, Norm, Positions

_BIAS_STD = 0.02
"""Small, but not 0, so that verification of a file tests biases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext:
    """What all layers of one call share.

    Attributes:
        rotation: cosine and sine of each token's angles, both (tokens, 1, rotated / 2); `None`
            without rotary positions.
        mask: (tokens x heads / kv_heads, context), 0 where a token sees a slot and the lowest
            number elsewhere; `None` if every token sees all tokens.
        rows: of the flat cache (batch x kv_heads x context, head_size) that the call writes, of
            shape (batch x tokens x kv_heads,); `None` without a cache.
    """

    rotation: tuple[Tensor, Tensor] | None = None
    mask: Tensor | None = None
    rows: Tensor | None = None


class RmsNorm(nn.Module):
    """Divides by the root mean square. Source: Zhang and Sennrich 2019, equation 4."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape (..., width); squares are summed in fp32."""
        wide = x if x.dtype == torch.float32 else x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (scaled if x.dtype == torch.float32 else scaled.to(x.dtype)) * self.weight


def make_norm(shape: LanguageShape) -> nn.Module:
    """The normalisation of vectors of `width`."""
    if shape.norm is Norm.RMS:
        return RmsNorm(shape.width, shape.norm_epsilon)
    return nn.LayerNorm(shape.width, eps=shape.norm_epsilon)


class TokenEmbedding(nn.Module):
    """Tables of tokens, places and token types; their sum is the input of the first block."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        table_width = shape.table_width
        self.offset = shape.position_offset
        self.tokens = nn.Embedding(shape.vocabulary, table_width)
        is_other_width = table_width != shape.width
        self.project = nn.Linear(table_width, shape.width, bias=False) if is_other_width else None
        is_learned = shape.positions is Positions.LEARNED
        n_places = shape.context + shape.position_offset
        self.places = nn.Embedding(n_places, shape.width) if is_learned else None
        self.types = nn.Embedding(shape.token_types, shape.width) if shape.token_types else None
        self.norm = make_norm(shape) if shape.norms_embedding else None

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """`tokens` (batch, tokens) and `positions` (tokens,) to (batch, tokens, width)."""
        return self.placed(self.tokens(tokens), positions)

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Vectors of the token table (batch, tokens, table_width) as input of the first block."""
        if self.project is not None:
            x = self.project(x)
        if self.places is not None:
            x = x + self.places(positions + self.offset)
        if self.types is not None:
            x = x + self.types.weight[0]
        return x if self.norm is None else self.norm(x)


class Attention(nn.Module):
    """Attention with grouped queries. Source: Ainslie et al. 2023."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = shape.heads, shape.kv_heads, shape.head_size
        reads, writes = shape.bias is not Bias.NONE, shape.bias is Bias.ALL
        self.queries = nn.Linear(shape.width, shape.heads * shape.head_size, bias=reads)
        self.keys = nn.Linear(shape.width, shape.kv_heads * shape.head_size, bias=reads)
        self.values = nn.Linear(shape.width, shape.kv_heads * shape.head_size, bias=reads)
        self.output = nn.Linear(shape.heads * shape.head_size, shape.width, bias=writes)

    def forward(
        self, x: Tensor, view: LayerContext, cache: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`x` (batch, tokens, width) to the same shape, and the keys and values it attended to."""
        queries = self.queries(x).unflatten(-1, (self.heads, self.size))
        keys = self.keys(x).unflatten(-1, (self.kv_heads, self.size))
        values = self.values(x).unflatten(-1, (self.kv_heads, self.size))
        if view.rotation is not None:
            queries, keys = rotate(queries, *view.rotation), rotate(keys, *view.rotation)
        if cache is not None and view.rows is not None:
            keys, values = write(cache[0], keys, view.rows), write(cache[1], values, view.rows)
        else:
            keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        return self.output(attend(queries, keys, values, view.mask)), (keys, values)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates the first elements of every head; element i is paired with i + rotated / 2.

    Source: Su et al. 2021, equation 34, in the order of pairs of GPT-NeoX.
    """
    half = cosine.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    parts = [first * cosine - second * sine, second * cosine + first * sine]
    return torch.cat([*parts, rest] if rest.shape[-1] else parts, dim=-1)


def write(cache: Tensor, new: Tensor, rows: Tensor) -> Tensor:
    """The cache with `new` (batch, tokens, kv_heads, size) in `rows`; the argument does not change.

    Along the first axis of a flat cache, because ONNX's exporter turns a copy along the third axis
    into two transpositions of the whole cache, which takes twice the time.
    """
    size = cache.shape[-1]
    flat = cache.reshape(-1, size).index_copy(0, rows, new.reshape(-1, size))
    return flat.reshape(cache.shape)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention of queries (batch, tokens, heads, size), to (batch, tokens, heads x size).

    The queries of a token that share keys are rows of one product, so that keys and values, both
    (batch, kv_heads, slots, size), are not repeated.
    """
    batch, tokens, _, size = queries.shape
    groups = keys.shape[1]
    by_group = (queries * size**-0.5).reshape(batch, tokens, groups, -1).transpose(1, 2)
    scores = by_group.reshape(batch, groups, -1, size) @ keys.transpose(-1, -2)
    shares = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    mixed = (shares @ values).reshape(batch, groups, tokens, -1)
    return mixed.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Two matrices with an activation between them; three if it is gated.

    Source: of the gate, Shazeer 2020, equation 6.
    """

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        has_bias = shape.bias is Bias.ALL
        self.activation = shape.activation
        self.up = nn.Linear(shape.width, shape.hidden, bias=has_bias)
        is_gated = shape.activation is Activation.SWIGLU
        self.gate = nn.Linear(shape.width, shape.hidden, bias=has_bias) if is_gated else None
        self.down = nn.Linear(shape.hidden, shape.width, bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same shape."""
        if self.gate is not None:
            return self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        if self.activation is Activation.RELU:
            return self.down(torch.relu(self.up(x)))
        form = "tanh" if self.activation is Activation.GELU_TANH else "none"
        return self.down(nn.functional.gelu(self.up(x), approximate=form))


class AttentionBlock(nn.Module):
    """Attention and feed-forward, each with its norm and residual sum."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.is_parallel, self.norm_comes_first = shape.is_parallel, shape.norm_comes_first
        self.attention_norm, self.feed_norm = make_norm(shape), make_norm(shape)
        self.attention, self.feed = Attention(shape), FeedForward(shape)

    def forward(
        self, x: Tensor, view: LayerContext, cache: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`x` (batch, tokens, width) to the same shape, and the keys and values of the block."""
        seen = self.attention_norm(x) if self.norm_comes_first else x
        mixed, cache = self.attention(seen, view, cache)
        if self.is_parallel:
            return x + mixed + self.feed(self.feed_norm(x)), cache
        if self.norm_comes_first:
            x = x + mixed
            return x + self.feed(self.feed_norm(x)), cache
        x = self.attention_norm(x + mixed)
        return self.feed_norm(x + self.feed(x)), cache


def initialise(network: nn.Module) -> None:
    """Random weights that keep every layer's output near a standard deviation of 1.

    Matrices are normal with variance 1 / (number of inputs), tables with variance 1 / width, so
    that a tied head gives logits of standard deviation 1; values neither vanish nor overflow.
    Source: LeCun et al. 1998, section 4.6.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.normal_(module.bias, std=_BIAS_STD)
