from pathlib import Path

import numpy as np
import pytest
from wording import has

from fleetrank.models.errors import ExportError
from fleetrank.models.verify import compare_files, compare_outputs

SCORES = np.array([[1.0, 2.0, 4.0], [8.0, 1.0, 0.0]], dtype=np.float32)


def test_equal_outputs_have_no_error() -> None:
    comparison = compare_outputs([SCORES], [SCORES])
    assert comparison.is_equal
    assert comparison.max_relative_error == 0


def test_error_is_relative_to_the_largest_reference_value() -> None:
    candidate = SCORES.copy()
    candidate[0, 0] += 0.004
    comparison = compare_outputs([SCORES], [candidate])
    assert comparison.is_equal
    assert comparison.max_relative_error == pytest.approx(0.004 / 8, rel=1e-3)


def test_error_above_the_tolerance_is_refused_with_both_numbers() -> None:
    comparison = compare_outputs([SCORES], [SCORES + 0.016])
    assert not comparison.is_equal
    assert comparison.reason == "relative error 0.002 above 0.001"


def test_the_worst_of_several_outputs_counts() -> None:
    comparison = compare_outputs([SCORES, SCORES], [SCORES, SCORES + 0.004])
    assert comparison.max_relative_error == pytest.approx(0.0005, rel=1e-3)


def test_tie_within_the_tolerance_may_fall_either_way() -> None:
    reference = np.array([[0.02, 0.021], [9.0, 0.0]], dtype=np.float32)
    candidate = np.array([[0.021, 0.02], [9.0, 0.0]], dtype=np.float32)
    assert compare_outputs([reference], [candidate]).is_equal


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


def test_all_zero_reference_is_equal_to_zeros_only() -> None:
    zeros = np.zeros((2, 3), dtype=np.float32)
    assert compare_outputs([zeros], [zeros]).is_equal
    assert not compare_outputs([zeros], [zeros + 1e-6]).is_equal


def test_files_are_compared_in_the_order_of_the_outputs(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(first, output_0=SCORES, output_1=SCORES * 2)
    np.savez(second, output_1=SCORES * 2, output_0=SCORES)
    assert compare_files(first, second).is_equal


def test_file_that_holds_pickled_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, output_0=np.array([{"run": "me"}], dtype=object))
    with pytest.raises(ExportError, match=r"a\.npz"):
        compare_files(path, path)


def test_text_file_is_no_output(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("not arrays")
    with pytest.raises(ExportError, match="cannot read the outputs"):
        compare_files(path, path)
