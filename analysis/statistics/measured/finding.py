"""What the audit finds: the kinds of problems, in the order of the harm they can do."""

import shlex
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.analysis.stored.exclusions import cell_pattern


class Problem(StrEnum):
    """What a finding is about; the first can change conclusions the most."""

    SLIPPED_PLATFORM = "platform in another unit"
    """All latencies of a platform are near 10^3 or 10^6 times those of its tier."""
    SLIPPED_MODEL = "model in another unit"
    """The same for a model on all platforms, or its FLOPs are wrong by that factor."""
    UNIT_SLIP = "unit slip"
    """An outlier against the fit near 10^3 or 10^6."""
    SENTINEL = "sentinel"
    """A figure is a code for 'missing'."""
    SLIPPED_MEMORY = "memory in another unit"
    """MB as MiB, or a factor of 1000 or 1024."""
    AGAINST_ITSELF = "outlier against itself"
    """The newest sweep contradicts the older ones."""
    AGAINST_THE_FIT = "outlier against the fit"
    """A figure is far from what the platform's other models predict."""
    PLACEMENT = "changed placement"
    """The newest release ran a model on another unit of the device."""
    DUPLICATE = "duplicate platform"
    PROPORTIONAL = "proportional platform"
    """All ratios to another platform are equal, but not 1."""
    REPEATED_ROWS = "repeated rows"
    """The same figures are stored twice and count as two measurements."""
    DIFFERENT_FACTS = "different facts"
    """A platform mixes facts that must be equal inside it."""
    DIFFERENT_METRICS = "different memory metrics"
    TIED_LATENCY = "tied latency"
    TIED_MEMORY = "tied memory"
    TOO_FEW_MODELS = "too few models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the audit.

    Attributes:
        platform_key: `None` if the finding is about a model on all its platforms.
        model: `None` if the finding is about the whole platform.
        figure: the observed value; `detail` explains it.
        command: leaves the cell out of all figures; `None` if the finding is not about one cell.
    """

    what: Problem
    platform_key: str | None
    model: str | None
    figure: float | None
    detail: str
    what_to_do: str
    command: str | None = None


def exclude_command(what: Problem, sweep_id: str, model: str, platform_key: str) -> str:
    """The shell command that leaves one cell of a sweep out of all figures."""
    pattern = cell_pattern(model, platform_key)
    parts = ("fleetrank", "results", "exclude", sweep_id, "--only", pattern)
    return shlex.join((*parts, "--reason", what.value))
