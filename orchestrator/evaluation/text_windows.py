"""How a long text is cut into windows that a model reads; each token is scored exactly once.

A strategy is a function from tokens to windows. To add one, add it to `STRATEGIES`; one that needs
more than the tokens of a window, such as a memory, also needs its own workload.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One inference over a text.

    Attributes:
        tokens: what the model reads.
        targets: the tokens to predict, the last one after the last token read; as many as are
            scored.
    """

    tokens: tuple[int, ...]
    targets: tuple[int, ...]


def rolling_windows(
    tokens: Sequence[int], prefix: int, length: int, stride: int
) -> Iterator[Window]:
    """Yields windows of at most `length` tokens, each with `stride` new targets after the first.

    Args:
        tokens: of one document.
        prefix: what the first token is predicted from.
        length: most tokens of one window.
        stride: new targets of each window after the first one, from 1 to `length`.

    Source: lm-evaluation-harness, `get_rolling_token_windows` with `context_len = length - stride
    + 1`; its default, `context_len = 1`, is `stride = length`.
    """
    first = min(length, len(tokens))
    if first:
        yield Window(tokens=(prefix, *tokens[: first - 1]), targets=tuple(tokens[:first]))
    for start in range(first, len(tokens), stride):
        end = min(start + stride, len(tokens))
        yield Window(
            tokens=tuple(tokens[end - length - 1 : end - 1]), targets=tuple(tokens[start:end])
        )


def segments(tokens: Sequence[int], prefix: int, length: int) -> Iterator[Window]:
    """Yields parts of `length` tokens that do not overlap; the last one may be shorter.

    Args:
        tokens: of one document.
        prefix: what the first token is predicted from.
        length: tokens of one segment.

    Source: `SegmentIterator` in the code of He et al. 2024, github.com/OswaldHe/HMT-pytorch,
    `modeling_rmt/language_modeling.py`.
    """
    read = (prefix, *tokens)
    for start in range(0, len(tokens), length):
        end = min(start + length, len(tokens))
        yield Window(tokens=read[start:end], targets=tuple(tokens[start:end]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to read a text that is longer than a window.

    Attributes:
        windows: of the tokens of a document, the prefix, the length of a window and its stride.
        usual_stride: new targets of a window of this length, unless the user gives another number.
        has_memory: windows are segments, and each one goes on with the states of the one before.
    """

    windows: Callable[[Sequence[int], int, int, int], Iterator[Window]]
    usual_stride: Callable[[int], int]
    has_memory: bool = False


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "vanilla": Strategy(windows=rolling_windows, usual_stride=lambda length: length),
        "window": Strategy(
            windows=rolling_windows, usual_stride=lambda length: max(1, length // 2)
        ),
        "hmt": Strategy(
            windows=lambda tokens, prefix, length, _: segments(tokens, prefix, length),
            usual_stride=lambda length: length,
            has_memory=True,
        ),
    }
)
"""`vanilla` forgets everything at the end of a window; `window` slides by half of its length; `hmt`
keeps tokens and memories of earlier segments, He et al. 2024."""
