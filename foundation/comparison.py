"""How alike the outputs of an exported file and of its network are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """The outputs of an exported file beside those of its network.

    Attributes:
        max_relative_error: max|a-b| / max|a|, the largest over the outputs; `None` if shapes or
            values cannot be compared.
        snr_db: 10 log10 of sum(a^2) / sum((a-b)^2), the smallest over the outputs; `None` if they
            cannot be compared or are equal in every bit.
        top1_agreement: share of cases with the same largest output, of outputs of shape
            (n_cases, n_classes); `None` without such an output.
        reason: why they differ; `None` if they are equal.
    """

    max_relative_error: float | None
    is_equal: bool
    reason: str | None = None
    snr_db: float | None = None
    top1_agreement: float | None = None
