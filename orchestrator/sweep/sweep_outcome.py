"""How a run of a sweep ended."""

from dataclasses import dataclass

from fleetrank.analysis.stored.sweep_record import SweepState


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """The progress of a sweep, including its earlier runs.

    Attributes:
        is_unreal: every device is simulated or virtual.
        n_profile_failed: profiled repeats that failed; not part of the other numbers.
        n_sets_failed: sets of processes that failed; not part of them either.
    """

    sweep_id: str
    n_ok: int
    n_failed: int
    n_left: int
    is_interrupted: bool
    is_unreal: bool
    n_profile_failed: int = 0
    n_sets_failed: int = 0

    @property
    def n_missing(self) -> int:
        """Repeats without a valid measurement, failed or pending."""
        return self.n_failed + self.n_left

    @property
    def state(self) -> SweepState:
        """Of the record; pending repeats of a regular end belong to an abandoned device."""
        if self.is_interrupted:
            return SweepState.INTERRUPTED
        return SweepState.STOPPED if self.n_left else SweepState.FINISHED
