"""What a network of text computes, holds and moves, from the numbers of its card.

Pure functions: a sweep over simulated devices needs neither a file nor PyTorch. Products are those
that an exported graph executes: the mask is dense, and the head reads the last token alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.foundation.vocabulary import Precision
from fleetrank.foundation.workload import MEMORY_PLACES, Workload, WorkloadKind
from fleetrank.models.cards.language import (
    RECALL_WIDTH,
    Activation,
    Bias,
    LanguageShape,
    Norm,
    Positions,
)
from fleetrank.models.networks.cost import ELEMENTWISE_FLOPS

VALUE_BYTES: Mapping[str, int] = {
    Precision.FP64: 8,
    Precision.FP32: 4,
    Precision.FP16: 2,
    Precision.BF16: 2,
}
"""Of a weight and of a value of the cache; other precisions do not store both in one type."""
_ID_BYTES = 8
"""Of a token id, which is a whole number of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a network.

    Attributes:
        tokens: that it reads, of one sequence.
        slots: tokens that each of them is compared with; of the cache, if there is one.
        has_cache: keys and values of the tokens are a state; false also for an encoder.
        sensory: of `segment`, tokens among `tokens` that belong to the state.
        memories: of `segment`, vectors that it recalls from; 0 for none and for all others.
        summarised: tokens that a pass before this one reads for that; 0 without memories.
    """

    tokens: int
    slots: int
    has_cache: bool = True
    sensory: int = 0
    memories: int = 0
    summarised: int = 0

    @property
    def passes(self) -> "tuple[tuple[int, int], ...]":
        """Tokens and slots of each pass over the blocks."""
        main = (self.tokens, self.slots)
        places = self.summarised + MEMORY_PLACES
        return (main, (places, places)) if self.memories else (main,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """The cost of one call.

    Attributes:
        macs: of one sequence.
        parameters: of the network.
        weight_bytes: all parameters; a tied table once.
        state_bytes: the cache of the whole batch; 0 for an encoder. Of `segment` its memories and
            the ids of its tokens before, of 8 bytes.
        bytes_moved: of the whole batch: matrices once for each pass, rows of the token table, the
            cache read and the new keys and values written; of `segment`, memories read and written.
            Activations are not part of it.
    """

    macs: int
    parameters: int
    weight_bytes: int
    state_bytes: int
    bytes_moved: int


def calls_of(workload: Workload) -> tuple[Call, ...]:
    """The unlike inferences of a workload: one, or the prompt and a step of `generate`.

    The last one is what a timed sample is; of a step of training, its forward pass. None for
    images.
    """
    tokens = workload.prompt_tokens
    if tokens is None:
        return ()
    slots = workload.context_tokens or tokens
    if workload.memories is not None:
        return (
            Call(
                tokens=slots,
                slots=slots,
                has_cache=False,
                sensory=workload.sensory or 0,
                memories=workload.memories,
                summarised=workload.summary_tokens or 0,
            ),
        )
    call = Call(tokens=tokens, slots=slots)
    is_loop = workload.kind is WorkloadKind.GENERATE
    return (call, Call(tokens=1, slots=slots)) if is_loop else (call,)


def call_cost(
    shape: LanguageShape,
    call: Call,
    batch: int = 1,
    value_bytes: int = 4,
    matrix_bytes: float | None = None,
) -> CallCost:
    """The cost of one call for `batch` sequences, with weights and cache of `value_bytes` a value.

    With `matrix_bytes`, weights of products have so many; a tied head then is a copy of its table.

    Source: the products of Kaplan et al. 2020, table 1, with grouped queries and gates, and the
    norms and softmax as `cost.count_cost` counts them.
    """
    weights = parameter_count(shape) + _memory_parameters(shape, call)
    per_slot = 2 * batch * shape.layers * shape.kv_heads * shape.head_size
    has_cache = call.has_cache and not shape.is_encoder
    touched_slots = call.slots + call.tokens if has_cache else 0
    places = MEMORY_PLACES if call.memories else 0
    rows = batch * (call.tokens - places + call.summarised) * shape.table_width
    memories = batch * call.memories * shape.table_width
    matrices = len(call.passes) * _products_per_token(shape) + _head(shape)
    matrices += _recall_matrices(shape, call) + _extra_rows(call) * _narrowed(shape)
    moved = value_bytes * (per_slot * touched_slots + rows + 2 * memories)
    state = per_slot * call.slots if has_cache else memories
    return CallCost(
        macs=_macs(shape, call),
        parameters=weights,
        weight_bytes=round(_stored_bytes(shape, weights, value_bytes, matrix_bytes)),
        state_bytes=value_bytes * state + _ID_BYTES * batch * call.sensory,
        bytes_moved=moved + round((matrix_bytes or value_bytes) * matrices),
    )


def _stored_bytes(
    shape: LanguageShape, weights: int, value_bytes: int, matrix_bytes: float | None
) -> float:
    if matrix_bytes is None:
        return value_bytes * weights
    head = 0 if shape.is_encoder else shape.table_width * shape.vocabulary
    matrices = shape.layers * _block_matrices(shape) + (0 if shape.is_tied else head)
    copied = head if shape.is_tied else 0
    return value_bytes * (weights - matrices) + matrix_bytes * (matrices + copied)


def _macs(shape: LanguageShape, call: Call) -> int:
    n_tokens = sum(tokens for tokens, _ in call.passes)
    n_pairs = sum(tokens * slots for tokens, slots in call.passes)
    attention = 2 * shape.layers * shape.heads * shape.head_size * n_pairs
    products = n_tokens * _products_per_token(shape) + _head(shape) + attention
    products += _extra_rows(call) * _narrowed(shape)
    if call.memories:
        # Products of the summary, and of each memory, in finding and in mixing memories.
        summary = shape.table_width * RECALL_WIDTH
        products += summary + call.memories * (summary + RECALL_WIDTH + shape.table_width)
    softmax = shape.layers * shape.heads * n_pairs + call.memories
    flops = 2 * products + ELEMENTWISE_FLOPS * (softmax + _normalised(shape, call))
    return round(flops / 2)


def _extra_rows(call: Call) -> int:
    """Vectors after the last block that a call uses beside that of the last token.

    With memories: the summary of the segment, and its new memory.
    """
    return 2 if call.memories else 0


def _recall_matrices(shape: LanguageShape, call: Call) -> int:
    return 2 * shape.table_width * RECALL_WIDTH if call.memories else 0


def _memory_parameters(shape: LanguageShape, call: Call) -> int:
    """Two matrices, the vector around a text to summarise, and the one before any memory."""
    return _recall_matrices(shape, call) + 2 * shape.table_width if call.memories else 0


def _products_per_token(shape: LanguageShape) -> int:
    """Elements of the matrices that every token is multiplied with."""
    return shape.layers * _block_matrices(shape) + _narrowed(shape)


def _block_matrices(shape: LanguageShape) -> int:
    attention = 2 * shape.width * (shape.heads + shape.kv_heads) * shape.head_size
    return attention + _feed_matrices(shape) * shape.width * shape.hidden


def _feed_matrices(shape: LanguageShape) -> int:
    return 3 if shape.activation is Activation.SWIGLU else 2


def _head(shape: LanguageShape) -> int:
    """Elements of the matrices that the last token alone is multiplied with."""
    if shape.is_encoder:
        return 0
    return _narrowed(shape) + shape.table_width * shape.vocabulary


def _narrowed(shape: LanguageShape) -> int:
    return shape.table_width * shape.width if shape.table_width != shape.width else 0


def _normalised(shape: LanguageShape, call: Call) -> int:
    """Elements of layer normalisations. An RMS norm has no operator that the counter knows."""
    if shape.norm is not Norm.LAYER:
        return 0
    norms = 2 * shape.layers + shape.norms_embedding
    n_tokens = sum(tokens for tokens, _ in call.passes)
    rows = call.tokens if shape.is_encoder else 1 + _extra_rows(call)
    return shape.width * (n_tokens * norms + rows * shape.norm_comes_first)


def embedding_count(shape: LanguageShape) -> int:
    """The parameters of the tables of tokens, positions and token types, without a head."""
    places = shape.context + shape.position_offset if shape.positions is Positions.LEARNED else 0
    table = shape.vocabulary * shape.table_width
    return table + shape.width * (places + shape.token_types)


def parameter_count(shape: LanguageShape) -> int:
    """The number of parameters; a tied table counts once."""
    table = shape.vocabulary * shape.table_width
    has_own_head = not (shape.is_tied or shape.is_encoder)
    widths = 1 if shape.is_encoder else 2
    projections = widths * shape.table_width * shape.width
    qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    others = shape.width + (_feed_matrices(shape) - 1) * shape.hidden + shape.width
    biases = {Bias.NONE: 0, Bias.QKV: qkv, Bias.ALL: qkv + others}[shape.bias]
    return sum(
        (
            embedding_count(shape),
            table * has_own_head,
            projections if shape.table_width != shape.width else 0,
            shape.layers * (_block_matrices(shape) + biases),
            (2 * shape.layers + shape.norm_comes_first + shape.norms_embedding)
            * shape.width
            * (2 if shape.norm is Norm.LAYER else 1),
        )
    )


def parameters_for(shape: LanguageShape, workload: Workload) -> int:
    """The number of parameters of the network for a workload; `segment` has a memory beside."""
    memory = sum(_memory_parameters(shape, call) for call in calls_of(workload)[:1])
    return parameter_count(shape) + memory


def why_too_large(
    shape: LanguageShape, workload: Workload, batch: int, value_bytes: int, memory_bytes: int
) -> str | None:
    """The reason why weights and cache do not fit in memory, with what fits; `None` if they fit.

    A lower bound of what is needed: activations and copies of the cache come on top.
    """
    calls = calls_of(workload)
    if not calls:
        return None
    cost = call_cost(shape, calls[-1], batch, value_bytes)
    room = memory_bytes - cost.weight_bytes
    if cost.state_bytes <= room:
        return None
    needed = f"weights of {_megabytes(cost.weight_bytes)}"
    if cost.state_bytes:
        state = "a cache" if calls[-1].has_cache else "memories"
        needed += f" and {state} of {_megabytes(cost.state_bytes)}"
    return (
        f"{needed} do not fit in {_megabytes(memory_bytes)}: {_what_fits(cost, calls, batch, room)}"
    )


def _what_fits(cost: CallCost, calls: tuple[Call, ...], batch: int, room: int) -> str:
    slots = calls[-1].slots
    if room <= 0 or not cost.state_bytes:
        return "the weights alone are too large"
    fitting_batch = room * batch // cost.state_bytes
    fitting_slots = room * slots // cost.state_bytes
    parts = []
    if fitting_batch:
        parts.append(f"batch {fitting_batch:,} with {slots:,} tokens fits")
    if fitting_slots and calls[-1].has_cache:
        parts.append(f"{fitting_slots:,} tokens at batch {batch:,} fit")
    return ", and ".join(parts) or "not even one token fits"


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"
