"""Checks that an exported file computes the same as its network; compares arrays only."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.errors import failing_as

Array = npt.NDArray[Any]
TOLERANCE = 1e-3
"""max|a-b| / max|a| in fp32: exporters reorder sums and fold constants, which costs about 1e-5."""
TOLERANCES: Mapping[str, float] = {"fp32": TOLERANCE, "fp16": 0.05, "bf16": 0.4}
"""By precision, against the fp32 original: three times the worst of five networks of the zoo, run
by PyTorch itself (fp16 0.0008 to 0.017, bf16 0.005 to 0.13). Detects wrong, not inaccurate files.
"""


LEAST_SNR_DB = 3.0
"""Of a file with integers: noise of half the power of the signal; unrelated outputs of the same
scale have -3 dB, zeros 0."""


def compare_outputs(
    reference: Sequence[Array], candidate: Sequence[Array], tolerance: float | None = TOLERANCE
) -> OutputComparison:
    """Compares output by output, arrays of shape (n_cases, ...).

    Equal means: same shapes, all finite, error within `tolerance`, and the same top-1 per case
    unless the reference's two largest values differ by less than that tolerance. Without a
    tolerance, which integers do not keep: at least `LEAST_SNR_DB`.
    """
    if len(reference) != len(candidate):
        return _unlike(f"{len(candidate)} outputs instead of {len(reference)}")
    pairs = list(zip(reference, candidate, strict=True))
    for number, (expected, actual) in enumerate(pairs):
        if expected.shape != actual.shape:
            return _unlike(f"output {number} has shape {actual.shape}, not {expected.shape}")
        if not (np.isfinite(expected).all() and np.isfinite(actual).all()):
            return _unlike(f"output {number} holds values that are not finite")
    worst = max((_relative_error(*pair) for pair in pairs), default=0.0)
    snr_db = min((one for pair in pairs if (one := _snr_db(*pair)) is not None), default=None)
    reason = None
    if tolerance is None:
        if snr_db is not None and snr_db < LEAST_SNR_DB:
            reason = f"signal-to-noise ratio {snr_db:.1f} dB below {LEAST_SNR_DB:g}"
    elif worst > tolerance:
        reason = f"relative error {worst:.2g} above {tolerance:g}"
    elif changed := [n for n, pair in enumerate(pairs) if not _has_same_top1(*pair, tolerance)]:
        reason = f"output {changed[0]} has a different top-1 class in at least one case"
    return OutputComparison(
        max_relative_error=worst,
        is_equal=reason is None,
        reason=reason,
        snr_db=snr_db,
        top1_agreement=_top1_agreement(pairs),
    )


def compare_files(
    reference_path: Path, candidate_path: Path, precision: str = "fp32"
) -> OutputComparison:
    """Compares two `.npz` files holding `output_0`, `output_1`, ..., as `precision` allows.

    Raises:
        BadOutputError: one of them cannot be read.
    """
    tolerance = TOLERANCES.get(precision)
    return compare_outputs(read_outputs(reference_path), read_outputs(candidate_path), tolerance)


def _unlike(reason: str) -> OutputComparison:
    return OutputComparison(max_relative_error=None, is_equal=False, reason=reason)


def _relative_error(expected: Array, actual: Array) -> float:
    if expected.size == 0:
        return 0.0
    # In double precision, so that the difference is not rounded.
    difference = float(np.max(np.abs(expected.astype(np.float64) - actual.astype(np.float64))))
    scale = float(np.max(np.abs(expected)))
    if scale == 0:
        return 0.0 if difference == 0 else float("inf")
    return difference / scale


def _snr_db(expected: Array, actual: Array) -> float | None:
    wanted = expected.astype(np.float64)
    signal, noise = float(np.sum(wanted**2)), float(np.sum((wanted - actual) ** 2))
    if not noise:
        return None
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _top1_agreement(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Of the first output that is a row of class scores."""
    for expected, actual in pairs:
        if expected.ndim == 2 and expected.shape[1] > 1 and len(expected):
            return float(np.mean(expected.argmax(axis=1) == actual.argmax(axis=1)))
    return None


def has_nan(outputs: Sequence[Array]) -> bool:
    """Whether an output holds a NaN, or no finite number.

    Some infinite numbers are normal: a masked score is one.
    """
    arrays = [one for one in outputs if isinstance(one, np.ndarray) and one.size]
    floats = [one for one in arrays if one.dtype.kind not in "iubOSU"]
    return any(np.isnan(one).any() or not np.isfinite(one).any() for one in floats)


def _has_same_top1(expected: Array, actual: Array, tolerance: float) -> bool:
    if expected.ndim != 2 or expected.shape[1] < 2:
        return True  # not a row of class scores
    cases = np.arange(len(expected))
    chosen = actual.argmax(axis=1)
    # The margin of the reference's top-1 class; in a tie either class is correct.
    gap = expected.max(axis=1) - expected[cases, chosen]
    return bool(np.all(gap <= tolerance * np.abs(expected).max()))


def read_outputs(path: Path) -> list[Array]:
    """The arrays `output_0`, `output_1`, ... of a file, which may hold others.

    Raises:
        BadOutputError: it cannot be read.
    """
    message = f"cannot read the outputs in {path}"
    remedy = "export it again"
    with failing_as(BadOutputError, message, remedy), np.load(path, allow_pickle=False) as arrays:
        n_outputs = sum(name.startswith("output_") for name in arrays.files)
        return [arrays[f"output_{number}"] for number in range(n_outputs)]
