"""Checks that an exported file computes the same as its network; compares arrays only."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fleetrank.models.errors import ExportError

Array = npt.NDArray[np.floating]
TOLERANCE = 1e-3
"""max|a-b| / max|a| in fp32: exporters reorder sums and fold constants, which costs about 1e-5."""
TOLERANCES: Mapping[str, float] = {"fp32": TOLERANCE, "fp16": 0.05, "bf16": 0.4}
"""By precision, against the fp32 original: three times the worst of five networks of the zoo, run
by PyTorch itself (fp16 0.0008 to 0.017, bf16 0.005 to 0.13). Detects wrong, not inaccurate files.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference between two sets of outputs.

    Attributes:
        max_relative_error: max|a-b| / max|a|, the largest over the outputs; `None` if shapes or
            values cannot be compared.
        reason: why they differ; `None` if they are equal.
    """

    max_relative_error: float | None
    is_equal: bool
    reason: str | None = None


def compare_outputs(
    reference: Sequence[Array], candidate: Sequence[Array], tolerance: float = TOLERANCE
) -> Comparison:
    """Compares output by output, arrays of shape (n_cases, ...).

    Equal means: same shapes, all finite, error within `tolerance`, and the same top-1 per case
    unless the reference's two largest values differ by less than that tolerance.
    """
    if len(reference) != len(candidate):
        return _unlike(f"{len(candidate)} outputs instead of {len(reference)}")
    worst = 0.0
    for number, (expected, actual) in enumerate(zip(reference, candidate, strict=True)):
        if expected.shape != actual.shape:
            return _unlike(f"output {number} has shape {actual.shape}, not {expected.shape}")
        if not (np.isfinite(expected).all() and np.isfinite(actual).all()):
            return _unlike(f"output {number} holds values that are not finite")
        worst = max(worst, _relative_error(expected, actual))
    if worst > tolerance:
        reason = f"relative error {worst:.2g} above {tolerance:g}"
        return Comparison(max_relative_error=worst, is_equal=False, reason=reason)
    changed = [
        number
        for number, (expected, actual) in enumerate(zip(reference, candidate, strict=True))
        if not _has_same_top1(expected, actual, tolerance)
    ]
    if changed:
        reason = f"output {changed[0]} has a different top-1 class in at least one case"
        return Comparison(max_relative_error=worst, is_equal=False, reason=reason)
    return Comparison(max_relative_error=worst, is_equal=True)


def compare_files(
    reference_path: Path, candidate_path: Path, precision: str = "fp32"
) -> Comparison:
    """Compares two `.npz` files holding `output_0`, `output_1`, ..., as `precision` allows.

    Raises:
        ExportError: one of them cannot be read.
    """
    tolerance = TOLERANCES.get(precision, TOLERANCE)
    return compare_outputs(_read_outputs(reference_path), _read_outputs(candidate_path), tolerance)


def _unlike(reason: str) -> Comparison:
    return Comparison(max_relative_error=None, is_equal=False, reason=reason)


def _relative_error(expected: Array, actual: Array) -> float:
    if expected.size == 0:
        return 0.0
    # In double precision, so that the difference is not rounded.
    difference = float(np.max(np.abs(expected.astype(np.float64) - actual.astype(np.float64))))
    scale = float(np.max(np.abs(expected)))
    if scale == 0:
        return 0.0 if difference == 0 else float("inf")
    return difference / scale


def _has_same_top1(expected: Array, actual: Array, tolerance: float) -> bool:
    if expected.ndim != 2 or expected.shape[1] < 2:
        return True  # not a row of class scores
    cases = np.arange(len(expected))
    chosen = actual.argmax(axis=1)
    # The margin of the reference's top-1 class; in a tie either class is correct.
    gap = expected.max(axis=1) - expected[cases, chosen]
    return bool(np.all(gap <= tolerance * np.abs(expected).max()))


def _read_outputs(path: Path) -> list[Array]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[f"output_{number}"] for number in range(len(arrays.files))]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ExportError(
            f"cannot read the outputs in {path}: {error}", "export it again"
        ) from error
