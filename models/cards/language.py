"""The numbers of a decoder or encoder of text, and the inputs that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from fleetrank.foundation.inputs.model_input import ModelInput, Values
from fleetrank.foundation.inputs.workload import CONTEXT, TOKENS, Workload, WorkloadKind
from fleetrank.models.cards.inputs import BATCH, CardInput

DECODER_WORKLOADS = (WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.GENERATE)
ENCODER_WORKLOADS = (WorkloadKind.ENCODE,)
MEMORY = "memory"
"""Part of a decoder that reads segments; the names of its weights start with it."""
RECALL_WIDTH = 4096
"""Width in which a segment's summary is compared with memories. Source: default of
`--mem_recall_hidden_dim` in the code of He et al. 2024, github.com/OswaldHe/HMT-pytorch."""


class Norm(StrEnum):
    """Normalisation of a layer's input."""

    RMS = "rms"
    LAYER = "layer"


class Positions(StrEnum):
    """How a network knows the place of a token."""

    ROTARY = "rotary"
    LEARNED = "learned"


class Activation(StrEnum):
    """Of the feed-forward layer; `swiglu` is gated and has a third matrix."""

    SWIGLU = "swiglu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU = "relu"


class Bias(StrEnum):
    """Which linear layers of attention and feed-forward add a bias."""

    NONE = "none"
    QKV = "qkv"
    """Queries, keys and values."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageShape:
    """The numbers of one decoder or encoder, as published.

    Attributes:
        width: of a token's vector between layers.
        heads: of queries; each is `head_size` wide.
        kv_heads: of keys and values; fewer than `heads` with grouped queries.
        hidden: width inside the feed-forward layer.
        vocabulary: number of token ids.
        context: most tokens of one sequence.
        rotary_share: share of a head's elements that positions rotate.
        position_offset: rows of the table of learned positions before position 0, which are not
            used.
        token_types: rows of the table of token types; the first one is added to every token.
        embedding_width: of the token table, if it differs from `width`; `None` if not. Matrices
            without bias then lead to `width` and back.
        is_tied: the head uses the token table.
        is_parallel: attention and feed-forward both read the input of the block, each through its
            norm, and their sum is added.
        norm_comes_first: before attention and feed-forward, and once more before the head;
            otherwise after each residual sum.
        norms_embedding: the input of the first block is normalised.
        is_encoder: every token sees all tokens, without a cache.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    context: int
    norm: Norm = Norm.RMS
    norm_epsilon: float = 1e-5
    positions: Positions = Positions.ROTARY
    rotary_base: float = 10_000.0
    rotary_share: float = 1.0
    position_offset: int = 0
    token_types: int = 0
    activation: Activation = Activation.SWIGLU
    embedding_width: int | None = None
    is_tied: bool = True
    bias: Bias = Bias.NONE
    is_parallel: bool = False
    norm_comes_first: bool = True
    norms_embedding: bool = False
    is_encoder: bool = False

    @property
    def table_width(self) -> int:
        """Width of the token table."""
        return self.embedding_width or self.width

    @property
    def workloads(self) -> tuple[WorkloadKind, ...]:
        """The kinds of inferences of this network."""
        return ENCODER_WORKLOADS if self.is_encoder else DECODER_WORKLOADS


def language_inputs(shape: LanguageShape) -> tuple[CardInput, ...]:
    """The inputs of the network, in the order of its arguments.

    `tokens` of shape (batch, tokens). A decoder also takes `positions` (tokens,), and for each
    layer `keys_i` and `values_i` of shape (batch, kv_heads, context, head_size), the cache. Its
    outputs are the logits of the last token, (batch, vocabulary), then `next_keys_i` and
    `next_values_i`.
    """
    ids = Values(low=0.0, high=float(shape.vocabulary - 1))
    tokens = CardInput(name="tokens", shape=(BATCH, TOKENS), dtype="int64", values=ids)
    if shape.is_encoder:
        return (tokens,)
    places = Values(counts_to=CONTEXT)
    positions = CardInput(name="positions", shape=(TOKENS,), dtype="int64", values=places)
    size = (BATCH, shape.kv_heads, CONTEXT, shape.head_size)
    caches = [
        CardInput(name=name, shape=size, dtype="float32", values=Values(), state=f"next_{name}")
        for layer in range(shape.layers)
        for name in (f"keys_{layer}", f"values_{layer}")
    ]
    return (tokens, positions, *caches)


def segment_inputs(shape: LanguageShape, workload: Workload) -> tuple[CardInput, ...]:
    """The inputs of a decoder that reads a segment of a long text.

    `tokens` (batch, tokens); `sensory` (batch, K), the tokens before them, not for K = 0; and
    `memories` (batch, N, table_width), oldest first, not for N = 0. A memory of zeros is empty. The
    outputs are the logits of the last token, (batch, vocabulary), then `next_sensory` and
    `next_memories`.
    """
    tokens = language_inputs(shape)[0]
    sensory = replace(
        tokens, name="sensory", shape=(BATCH, workload.sensory or 0), state="next_sensory"
    )
    memories = CardInput(
        name="memories",
        shape=(BATCH, workload.memories or 0, shape.table_width),
        dtype="float32",
        values=Values(),
        state="next_memories",
    )
    return (tokens, *(one for one in (sensory, memories) if one.shape[1]))


def language_outputs(
    shape: LanguageShape, inputs: Iterable[CardInput | ModelInput]
) -> tuple[str, ...]:
    """Names of the outputs, in their order.

    `hidden` (batch, tokens, width) of an encoder; `logits` (batch, vocabulary) of a decoder's last
    token and then the states of its inputs.
    """
    if shape.is_encoder:
        return ("hidden",)
    return ("logits", *(one.state for one in inputs if one.state is not None))
