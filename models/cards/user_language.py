"""The table `[language]` of a user's card: the numbers of a decoder or encoder of text."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fleetrank.foundation.inputs.workload import LARGEST_LENGTH
from fleetrank.models.cards.language import Activation, Bias, LanguageShape, Norm, Positions

_Width = Annotated[int, Field(ge=1, le=2**20, strict=True)]
_Few = Annotated[int, Field(ge=1, le=1024, strict=True)]
_Rows = Annotated[int, Field(ge=0, le=1024, strict=True)]
_Ids = Annotated[int, Field(ge=1, le=2**24, strict=True)]
_Length = Annotated[int, Field(ge=1, le=LARGEST_LENGTH, strict=True)]
_Flag = Annotated[bool, Field(strict=True)]


class UserLanguage(BaseModel):
    """The numbers, as `models show stories260k` prints them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: _Few = Field(description="number of blocks")
    width: _Width = Field(description="of a token's vector between layers")
    heads: _Few = Field(description="heads of queries")
    kv_heads: _Few = Field(description="heads of keys and values; heads is a multiple of it")
    head_size: _Width = Field(description="width of one head")
    hidden: _Width = Field(description="width inside the feed-forward layer")
    vocabulary: _Ids = Field(description="number of token ids")
    context: _Length = Field(description="most tokens of one sequence")
    norm: Norm = Field(default=Norm.RMS, description="normalisation")
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="added to the variance"
    )
    positions: Positions = Field(default=Positions.ROTARY, description="of a token")
    rotary_base: Annotated[float, Field(gt=1, le=1e12)] = Field(
        default=10_000.0, description="ratio of the slowest angle to the fastest"
    )
    rotary_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="share of a head's elements that positions rotate"
    )
    position_offset: _Rows = Field(
        default=0, description="unused rows before position 0 of the table of positions"
    )
    token_types: _Rows = Field(default=0, description="rows of the table of token types")
    activation: Activation = Field(
        default=Activation.SWIGLU, description="of the feed-forward layer"
    )
    embedding_width: _Width | None = Field(
        default=None, description="of the token table, if it differs from width"
    )
    is_tied: _Flag = Field(default=True, description="the head uses the token table")
    bias: Bias = Field(default=Bias.NONE, description="linear layers that add a bias")
    is_parallel: _Flag = Field(
        default=False, description="attention and feed-forward read the same input"
    )
    norm_comes_first: _Flag = Field(
        default=True, description="before attention and feed-forward, not after each sum"
    )
    norms_embedding: _Flag = Field(default=False, description="the first input is normalised")
    is_encoder: _Flag = Field(default=False, description="every token sees all tokens")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        rotated = int(self.head_size * self.rotary_share)
        is_rotary = self.positions is Positions.ROTARY
        if is_rotary and (rotated < 2 or rotated % 2):
            raise ValueError(
                f"{rotated} elements of a head would be rotated; head_size x rotary_share must be "
                "even and not 0"
            )
        if self.is_encoder and is_rotary:
            raise ValueError("an encoder has positions = 'learned'")
        return self

    @property
    def shape(self) -> LanguageShape:
        """The numbers as the rest of the program uses them."""
        return LanguageShape(**self.model_dump())
