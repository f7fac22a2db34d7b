"""The numbers of a decoder or encoder of text, and the inputs that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Key
from fleetrank.foundation.workload import CONTEXT, LARGEST_LENGTH, TOKENS, Workload, WorkloadKind
from fleetrank.models.cards.inputs import BATCH, CardInput, ValueRule

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


_Width = Annotated[int, Key(ge=1, le=2**20)]
_Few = Annotated[int, Key(ge=1, le=1024)]
_Rows = Annotated[int, Key(ge=0, le=1024)]
_Ids = Annotated[int, Key(ge=1, le=2**24)]
_Length = Annotated[int, Key(ge=1, le=LARGEST_LENGTH)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageShape:
    """The numbers of one decoder or encoder, as `models show stories260k` prints them."""

    __pydantic_config__ = NO_OTHER_KEYS

    layers: Annotated[_Few, Key("number of blocks")]
    width: Annotated[_Width, Key("of a token's vector between layers")]
    heads: Annotated[_Few, Key("heads of queries, each head_size wide")]
    kv_heads: Annotated[
        _Few,
        Key("heads of keys and values; heads is a multiple of it; fewer with grouped queries"),
    ]
    head_size: Annotated[_Width, Key("width of one head")]
    hidden: Annotated[_Width, Key("width inside the feed-forward layer")]
    vocabulary: Annotated[_Ids, Key("number of token ids")]
    context: Annotated[_Length, Key("most tokens of one sequence")]
    norm: Annotated[Norm, Key("normalisation")] = Norm.RMS
    norm_epsilon: Annotated[float, Key("added to the variance", gt=0, lt=1)] = 1e-5
    positions: Annotated[Positions, Key("of a token")] = Positions.ROTARY
    rotary_base: Annotated[
        float, Key("ratio of the slowest angle to the fastest", gt=1, le=1e12)
    ] = 10_000.0
    rotary_share: Annotated[
        float, Key("share of a head's elements that positions rotate", gt=0, le=1)
    ] = 1.0
    position_offset: Annotated[
        _Rows, Key("unused rows before position 0 of the table of learned positions")
    ] = 0
    token_types: Annotated[
        _Rows, Key("rows of the table of token types; the first one is added to every token")
    ] = 0
    activation: Annotated[Activation, Key("of the feed-forward layer")] = Activation.SWIGLU
    embedding_width: Annotated[
        _Width | None,
        Key(
            "of the token table, if it differs from width; matrices without bias then lead to "
            "width and back"
        ),
    ] = None
    is_tied: Annotated[bool, Key("the head uses the token table")] = True
    bias: Annotated[Bias, Key("linear layers that add a bias")] = Bias.NONE
    is_parallel: Annotated[
        bool,
        Key(
            "attention and feed-forward both read the input of the block, each through its norm, "
            "and their sum is added"
        ),
    ] = False
    norm_comes_first: Annotated[
        bool,
        Key(
            "before attention and feed-forward, and once more before the head; otherwise after "
            "each residual sum"
        ),
    ] = True
    norms_embedding: Annotated[bool, Key("the input of the first block is normalised")] = False
    is_encoder: Annotated[bool, Key("every token sees all tokens, without a cache")] = False

    @property
    def table_width(self) -> int:
        """Width of the token table."""
        return self.embedding_width or self.width

    @property
    def widths_read(self) -> frozenset[int]:
        """Lengths of the rows of all matrices of weights."""
        return frozenset({self.width, self.table_width, self.hidden, self.heads * self.head_size})

    @property
    def workloads(self) -> tuple[WorkloadKind, ...]:
        """The kinds of inferences of this network."""
        return ENCODER_WORKLOADS if self.is_encoder else DECODER_WORKLOADS


def valid_shape(shape: LanguageShape) -> LanguageShape:
    """Rejects numbers that do not fit together.

    Raises:
        ValueError: which ones.
    """
    if shape.heads % shape.kv_heads:
        raise ValueError(f"heads {shape.heads} is not a multiple of kv_heads {shape.kv_heads}")
    rotated = int(shape.head_size * shape.rotary_share)
    is_rotary = shape.positions is Positions.ROTARY
    if is_rotary and (rotated < 2 or rotated % 2):
        raise ValueError(
            f"{rotated} elements of a head would be rotated; head_size x rotary_share must be even "
            "and not 0"
        )
    if shape.is_encoder and is_rotary:
        raise ValueError("an encoder has positions = 'learned'")
    return shape


def language_inputs(shape: LanguageShape) -> tuple[CardInput, ...]:
    """The inputs of the network, in the order of its arguments.

    `tokens` of shape (batch, tokens). A decoder also takes `positions` (tokens,), and for each
    layer `keys_i` and `values_i` of shape (batch, kv_heads, context, head_size), the cache. Its
    outputs are the logits of the last token, (batch, vocabulary), then `next_keys_i` and
    `next_values_i`.
    """
    ids = ValueRule(below=shape.vocabulary)
    tokens = CardInput(name="tokens", shape=(BATCH, TOKENS), dtype="int64", values=ids)
    if shape.is_encoder:
        return (tokens,)
    places = ValueRule(positions=CONTEXT)
    positions = CardInput(name="positions", shape=(TOKENS,), dtype="int64", values=places)
    size = (BATCH, shape.kv_heads, CONTEXT, shape.head_size)
    caches = [
        CardInput(name=name, shape=size, state=f"next_{name}")
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
