"""The built-in decoder of text: one module for all cards, with caches as inputs and outputs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fleetrank.foundation.inputs import Workload
from fleetrank.models.cards.language import (
    RECALL_WIDTH,
    Activation,
    Bias,
    LanguageShape,
    Norm,
    Positions,
)

# Parts that decoders and encoders share: embedding, norms, attention, feed-forward, one block.
#
# Attention and rotation are written as plain products, so that every exporter writes the same
# graph and PyTorch's counter sees every product.

_BIAS_STD = 0.02
"""Small, but not 0, so that verification of a file tests biases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
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
        self, x: Tensor, view: View, cache: tuple[Tensor, Tensor] | None
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


class Block(nn.Module):
    """Attention and feed-forward, each with its norm and residual sum."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.is_parallel, self.norm_comes_first = shape.is_parallel, shape.norm_comes_first
        self.attention_norm, self.feed_norm = make_norm(shape), make_norm(shape)
        self.attention, self.feed = Attention(shape), FeedForward(shape)

    def forward(
        self, x: Tensor, view: View, cache: tuple[Tensor, Tensor] | None = None
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


class Decoder(nn.Module):
    """A decoder with a static cache; `language_inputs` and `language_outputs` name its tensors."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.queries_per_key = shape.heads // shape.kv_heads
        self.embedding = TokenEmbedding(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
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
        view = View(
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


# The built-in encoder of text: every token sees all tokens, without a cache.


class Encoder(nn.Module):
    """An encoder without a pooling layer or a head."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = make_norm(shape) if shape.norm_comes_first else None
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """`tokens` (batch, tokens) to the vectors of the last layer, (batch, tokens, width)."""
        x = self.embedding(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x, _ = block(x, View())
        return x if self.norm is None else self.norm(x)


# The built-in decoder as a reader of long texts, segment by segment, with a memory.
#
# The Hierarchical Memory Transformer of He et al. 2024 (arXiv 2405.06067), as its authors' code
# has it (github.com/OswaldHe/HMT-pytorch, `modeling_rmt`). Left out is what the paper does not
# have: further tokens that are read in its test mode, and a map of memories at a change of topic.


class SegmentReader(Decoder):
    """A decoder that reads the next tokens of a text; `segment_inputs` names its tensors.

    Beside its `memory` it has the weights of `Decoder`, and for one seed the same values.
    """

    def __init__(self, shape: LanguageShape, workload: Workload) -> None:
        super().__init__(shape)
        self.sensory, self.summary_tokens = workload.sensory or 0, workload.summary_tokens
        self.memory = Memory(shape.table_width) if workload.memories else None

    def forward(self, tokens: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Reads a segment and gives the logits of its last token, or of every one.

        Args:
            tokens: (batch, L), the segment.
            states: `sensory` (batch, K), the tokens before it, unless K is 0; then `memories`
                (batch, N, table_width), oldest first, unless N is 0. Memories of zeros are empty.

        Returns:
            Logits as those of `Decoder`, then the states for the next segment: its K tokens before,
            and the memories with that of this segment instead of the oldest.
        """
        length = tokens.shape[1]
        given = list(states)
        ids = torch.cat([given.pop(0), tokens], dim=1) if self.sensory else tokens
        # A part of `ids`, not of `tokens`: a runtime may write it where `sensory` is still read.
        sensory = (ids[:, -self.sensory :],) if self.sensory else ()
        x = self.embedding.tokens(ids)
        if self.memory is None:
            seen = self._pass(x)[:, -length:]
            return (self._head(self._outcome(self._scored(seen))), *sensory)
        (memories,) = given
        summary = self._summary(tokens[:, : self.summary_tokens], self.memory.question)
        prompt = self.memory(summary, memories)
        seen = self._pass(torch.cat([prompt, x, prompt], dim=1))
        new = self._outcome(seen[:, -1:])
        logits = self._head(self._outcome(self._scored(seen[:, -1 - length : -1])))
        return (logits, *sensory, torch.cat([memories[:, 1:], new], dim=1))

    def _scored(self, seen: Tensor) -> Tensor:
        return seen if self.scores_every_token else seen[:, -1]

    def _summary(self, tokens: Tensor, question: Tensor) -> Tensor:
        """Tokens as one vector, (batch, 1, table_width): that of the question after them."""
        around = question.expand(len(tokens), 1, -1)
        x = torch.cat([around, self.embedding.tokens(tokens), around], dim=1)
        return self._outcome(self._pass(x)[:, -1:])

    def _pass(self, vectors: Tensor) -> Tensor:
        """One pass without a cache, over vectors of the token table (batch, n, table_width)."""
        places = torch.arange(vectors.shape[1], device=vectors.device)
        view = View(
            rotation=self._rotation(places, vectors.dtype),
            mask=causal_mask(places, self.queries_per_key, len(places), vectors.dtype),
        )
        x = self.embedding.placed(vectors, places)
        for block in self.blocks:
            x, _ = block(x, view)
        return x


class Memory(nn.Module):
    """Finds what a segment needs of earlier ones.

    Attributes:
        question: (1, table_width), before and after the tokens that are summarised.
        first: (1, table_width), takes the place of what is recalled while all memories are empty.
    """

    def __init__(self, table_width: int) -> None:
        super().__init__()
        self.queries = nn.Linear(table_width, RECALL_WIDTH, bias=False)
        self.keys = nn.Linear(table_width, RECALL_WIDTH, bias=False)
        self.question = nn.Parameter(torch.empty(1, table_width))
        self.first = nn.Parameter(torch.empty(1, table_width))
        initialise(self)
        # As rows of the token table, which they stand beside.
        for vector in (self.question, self.first):
            nn.init.normal_(vector, std=table_width**-0.5)

    def forward(self, summary: Tensor, memories: Tensor) -> Tensor:
        """The recalled memory (batch, 1, table_width): memories weighted by their likeness.

        Args:
            summary: (batch, 1, table_width) of the segment.
            memories: (batch, N, table_width); those of zeros are empty and not recalled.

        Source: He et al. 2024, memory recall: softmax((S Wq)(M Wk)^T / sqrt(RECALL_WIDTH)) M.
        """
        scores = self.queries(summary) @ self.keys(memories).transpose(1, 2) * RECALL_WIDTH**-0.5
        sizes = memories.abs().amax(dim=-1)[:, None]
        zero = torch.zeros((), dtype=scores.dtype, device=scores.device)
        mask = torch.where(sizes > 0, zero, torch.finfo(scores.dtype).min)
        recalled = torch.softmax(scores + mask, dim=-1) @ memories
        return torch.where(sizes.amax(dim=-1, keepdim=True) > 0, recalled, self.first)
