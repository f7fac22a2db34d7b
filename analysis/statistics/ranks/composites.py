"""Published measures that join several costs, other than FRM; on arrays over models."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, require_finite

ACCURACY_POWER, PARAMETERS_POWER, MACS_POWER = 2.0, 0.5, 0.5
"""Alpha, beta and gamma of NetScore. Source: Wong 2018, section 3."""
_MILLION, _BILLION = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Where models stand under a platform's roofline; arrays are (n_models,).

    Attributes:
        peak_flops_per_s, peak_bytes_per_s: the highest that any of the models reached.
        intensity_flops_per_byte: FLOPs of a model per byte of its parameters.
        is_compute_bound: the intensity is at or beyond the ridge, peak FLOP/s / peak byte/s.
        share: of the performance that the roofline allows at this intensity, 0 to 1.
    """

    peak_flops_per_s: float
    peak_bytes_per_s: float
    intensity_flops_per_byte: Floats
    is_compute_bound: npt.NDArray[np.bool_]
    share: Floats


def netscore(accuracy: Floats, parameters: Floats, macs: Floats) -> Floats:
    """20 log10(accuracy^2 / (parameters^0.5 x MACs^0.5)); larger is better.

    Accuracy in per cent. The formula takes parameters in millions and MACs in billions, which are
    given here as plain counts; other units shift all scores alike and change no rank.

    Raises:
        ValueError: a value is not above 0; take that model out.

    Source: Wong 2018, "NetScore", equation 2.
    """
    _require_positive(accuracy, parameters, macs)
    score: Floats = 20 * (
        ACCURACY_POWER * np.log10(accuracy)
        - PARAMETERS_POWER * np.log10(parameters / _MILLION)
        - MACS_POWER * np.log10(macs / _BILLION)
    )
    return score


def energy_delay_mj_ms(energy_mj: Floats, latency_ns: Floats) -> Floats:
    """Energy of an inference times its latency, mJ x ms. Source: Gonzalez and Horowitz 1996."""
    require_finite(np.concatenate([energy_mj, latency_ns]))
    product: Floats = energy_mj * latency_ns / 1e6
    return product


def roofline(flops: Floats, weight_bytes: Floats, latency_ns: Floats) -> Roofline:
    """The roofline that the models of one platform draw themselves, and where each stands.

    An estimate: the real peaks are at or above what these models reach, and traffic other than
    reading the parameters once (activations) is not counted.

    Raises:
        ValueError: a value is not above 0; take that model out.

    Source: Williams, Waterman and Patterson 2009.
    """
    _require_positive(flops, weight_bytes, latency_ns)
    seconds = latency_ns / 1e9
    peak_flops, peak_bytes = float((flops / seconds).max()), float((weight_bytes / seconds).max())
    intensity = flops / weight_bytes
    allowed = np.minimum(peak_flops, intensity * peak_bytes)
    return Roofline(
        peak_flops_per_s=peak_flops,
        peak_bytes_per_s=peak_bytes,
        intensity_flops_per_byte=intensity,
        is_compute_bound=intensity * peak_bytes >= peak_flops,
        share=np.minimum(1.0, flops / seconds / allowed),
    )


def _require_positive(*parts: Floats) -> None:
    for values in parts:
        require_finite(values)
        if (values <= 0).any():
            raise ValueError("a value is not above 0: take out models that have none")
