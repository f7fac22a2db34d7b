"""Windows: every token is scored once, from the tokens before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.orchestrator.evaluation.text_windows import STRATEGIES, rolling_windows, segments


@given(
    n_tokens=st.integers(0, 60), length=st.integers(1, 12), data=st.data(),
)  # fmt: skip
def test_every_token_is_scored_once_after_its_predecessors(
    n_tokens: int, length: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, length))
    tokens = list(range(100, 100 + n_tokens))
    windows = list(rolling_windows(tokens, 7, length, stride))
    assert [target for window in windows for target in window.targets] == tokens
    before = [7, *tokens]
    for window in windows:
        assert 1 <= len(window.targets) <= len(window.tokens) <= length
        end = before.index(window.tokens[-1]) + 1
        assert list(window.tokens) == before[end - len(window.tokens) : end]
        assert window.targets[-1] == tokens[end - 1]
    for window in windows[1:]:
        # As much context as fits.
        assert len(window.tokens) == length


@pytest.mark.parametrize(
    ("length", "stride", "wanted"),
    [
        (
            4,
            4,
            [((0, 1, 2, 3), (1, 2, 3, 4)), ((4, 5, 6, 7), (5, 6, 7, 8)), ((6, 7, 8, 9), (9, 10))],
        ),
        (
            4,
            2,
            [
                ((0, 1, 2, 3), (1, 2, 3, 4)),
                ((2, 3, 4, 5), (5, 6)),
                ((4, 5, 6, 7), (7, 8)),
                ((6, 7, 8, 9), (9, 10)),
            ],
        ),
        (20, 20, [(tuple(range(10)), tuple(range(1, 11)))]),
    ],
)
def test_windows_are_those_of_the_harness(
    length: int, stride: int, wanted: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    """Recorded with lm-evaluation-harness 0.4.13, `get_rolling_token_windows`."""
    found = rolling_windows(list(range(1, 11)), 0, length, stride)
    assert [(window.tokens, window.targets) for window in found] == wanted


@given(n_tokens=st.integers(0, 60), length=st.integers(1, 12))
def test_segments_read_and_score_each_token_once(n_tokens: int, length: int) -> None:
    tokens = list(range(100, 100 + n_tokens))
    found = list(segments(tokens, 7, length))
    assert [token for one in found for token in one.tokens] == [7, *tokens][:n_tokens]
    assert [target for one in found for target in one.targets] == tokens
    assert all(len(one.tokens) == len(one.targets) for one in found)
    assert all(len(one.tokens) == length for one in found[:-1])
    windows = list(rolling_windows(tokens, 7, length, length))
    assert len(windows) == len(found)
    # Only the last one differs from a window, which is full unless it is the first.
    n_equal = len(found) if n_tokens % length == 0 else len(found) - 1
    assert windows[:n_equal] == found[:n_equal]


def test_the_last_segment_is_shorter() -> None:
    found = [(one.tokens, one.targets) for one in STRATEGIES["hmt"].windows(range(1, 11), 0, 4, 4)]
    assert found == [
        ((0, 1, 2, 3), (1, 2, 3, 4)),
        ((4, 5, 6, 7), (5, 6, 7, 8)),
        ((8, 9), (9, 10)),
    ]


def test_strategies_differ_in_their_stride() -> None:
    strides = {name: one.usual_stride(512) for name, one in STRATEGIES.items()}
    assert strides == {"vanilla": 512, "window": 256, "hmt": 512}
    assert STRATEGIES["window"].usual_stride(1) == 1
