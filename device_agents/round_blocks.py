"""The timed runs of one block of a round.

A host's speed changes within seconds. Cells that take turns of a fraction of a second meet the same
states of the host, so their ratios vary less than those of cells measured one after the other.

Source: L. Bulej et al., Duet Benchmarking: Improving Measurement Accuracy in the Cloud, ICPE 2020,
for two versions of one program; here any number of cells take turns.
"""

from array import array
from dataclasses import dataclass

from fleetrank.device_agents.contract.task import BlockPolicy
from fleetrank.device_agents.timing import NOTHING, Clock, Step, Untimed, fill
from fleetrank.foundation.units import NS_PER_S

_NEVER_NS = 2**63
"""Later than any time of the clock."""
_MAX_BLOCK_SAMPLES = 100_000
"""Storage of one block: 0.8 MB; a run of 4 us fills a block of 0.4 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    """The times of one block, in nanoseconds and in order."""

    left_out_ns: tuple[int, ...]
    samples_ns: tuple[int, ...]


def time_block(
    step: Step, clock: Clock, policy: BlockPolicy, untimed: Untimed = NOTHING
) -> BlockRuns:
    """Times the runs of one block; at least one run is a sample.

    Args:
        step: one synchronised inference.
        clock: monotonic nanoseconds.
        policy: duration and runs left out.
        untimed: around each run; the first runs of a block have only its `before`.
    """
    samples = array("q", bytes(8 * _MAX_BLOCK_SAMPLES))
    left_out = array("q", bytes(8 * policy.left_out_runs))
    fill(left_out, 0, policy.left_out_runs, (step, clock, _NEVER_NS), _OnlyBefore(untimed))
    deadline = clock() + int(policy.block_s * NS_PER_S)
    count = fill(samples, 0, _MAX_BLOCK_SAMPLES, (step, clock, deadline), untimed)
    return BlockRuns(left_out_ns=tuple(left_out), samples_ns=tuple(samples[:count]))


class _OnlyBefore:
    """Prepares a run as `untimed` does, and reads nothing after it."""

    def __init__(self, untimed: Untimed) -> None:
        self.before = untimed.before

    def after(self) -> None:
        """Does nothing."""
