from pathlib import Path

import numpy as np
import pytest
from wording import has

from fleetrank.device_agents.comparison import compare_files, compare_outputs
from fleetrank.device_agents.errors import BadOutputError

SCORES = np.array([[1.0, 2.0, 4.0], [8.0, 1.0, 0.0]], dtype=np.float32)


TIE = np.array([[0.02, 0.021], [9.0, 0.0]], dtype=np.float32)
SWAPPED = np.array([[0.021, 0.02], [9.0, 0.0]], dtype=np.float32)
ZEROS = np.zeros((2, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("reference", "candidate", "error"),
    [
        ([SCORES], [SCORES], 0.0),
        ([SCORES], [SCORES + np.eye(2, 3, dtype=np.float32) * 0.004], 0.004 / 8),
        ([SCORES, SCORES], [SCORES, SCORES + 0.004], 0.0005),
        ([TIE], [SWAPPED], 0.001 / 9),
        ([ZEROS], [ZEROS], 0.0),
    ],
    ids=["equal", "of the largest value", "worst output", "a tie either way", "zeros"],
)
def test_small_errors_are_relative_to_the_largest_reference_value(
    reference: list[np.ndarray], candidate: list[np.ndarray], error: float
) -> None:
    comparison = compare_outputs(reference, candidate)
    assert comparison.is_equal
    assert comparison.max_relative_error == pytest.approx(error, rel=1e-3)


def test_error_above_the_tolerance_is_refused_with_both_numbers() -> None:
    comparison = compare_outputs([SCORES], [SCORES + 0.016])
    assert not comparison.is_equal
    assert comparison.reason == "relative error 0.002 above 0.001"
    assert not compare_outputs([ZEROS], [ZEROS + 1e-6]).is_equal


def test_other_top1_is_refused_though_the_error_is_small() -> None:
    reference = np.array([[0.0, 2.0], [10.0, 0.0]], dtype=np.float32)
    candidate = np.array([[1.01, 1.0], [10.0, 0.0]], dtype=np.float32)
    comparison = compare_outputs([reference], [candidate], tolerance=0.15)
    assert has(comparison.reason, "0", "different", "top-1")


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ([], "0 outputs instead of 1"),
        ([SCORES[:1]], "shape"),
        ([np.full_like(SCORES, np.nan)], "not finite"),
    ],
)
def test_incomparable_outputs_are_refused(candidate: list[np.ndarray], reason: str) -> None:
    comparison = compare_outputs([SCORES], candidate)
    assert not comparison.is_equal
    assert comparison.max_relative_error is None
    assert reason in (comparison.reason or "")


def test_files_are_compared_in_the_order_of_the_outputs(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(first, output_0=SCORES, output_1=SCORES * 2)
    np.savez(second, output_1=SCORES * 2, output_0=SCORES)
    assert compare_files(first, second).is_equal


@pytest.mark.parametrize(("precision", "limit"), [("fp32", 0.001), ("fp16", 0.05), ("bf16", 0.4)])
def test_each_precision_has_its_tolerance(precision: str, limit: float, tmp_path: Path) -> None:
    original, exported = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(original, output_0=SCORES)
    for share, is_equal in ((0.95, True), (1.05, False)):
        np.savez(exported, output_0=SCORES + SCORES.max() * limit * share)
        assert compare_files(original, exported, precision).is_equal is is_equal


def test_a_file_of_pickled_objects_or_of_text_is_refused(tmp_path: Path) -> None:
    pickled, text = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(pickled, output_0=np.array([{"run": "me"}], dtype=object))
    text.write_text("not arrays")
    for path in (pickled, text):
        with pytest.raises(BadOutputError, match=f"cannot read the outputs in .*{path.name}"):
            compare_files(path, path)


def test_integers_are_judged_by_their_noise() -> None:
    noisy = SCORES + np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32)
    seen = compare_outputs([SCORES], [noisy], None)
    assert seen.is_equal
    assert seen.snr_db == pytest.approx(10 * np.log10((1 + 4 + 16 + 64 + 1) / 2))
    assert seen.top1_agreement == 1.0
    assert compare_outputs([SCORES], [SCORES[::-1]], None).top1_agreement == 0.0


@pytest.mark.parametrize("wrong", [ZEROS, SCORES[::-1], np.full((2, 3), SCORES.mean())])
def test_integers_that_lost_the_signal_are_refused(wrong: np.ndarray) -> None:
    reason = compare_outputs([SCORES], [wrong.astype(np.float32)], None).reason
    assert reason is not None
    assert reason.startswith("signal-to-noise ratio")


def test_equal_outputs_have_no_noise() -> None:
    assert compare_outputs([SCORES], [SCORES], None).snr_db is None
    lost = compare_outputs([ZEROS], [ZEROS + 1], None)
    assert not lost.is_equal
    assert lost.reason is not None
