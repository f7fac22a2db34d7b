"""The proof that fleetrank's figures are right on a device: five pairs of runs, and their line.

The same program runs the same file by the plain way and by fleetrank's, in turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from fleetrank.device_agents.contract.measurement import (
    Conditions,
    Measurement,
    WorkerFacts,
    utc_now,
)
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.cpus import cpu_list
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.user_file import NO_OTHER_KEYS
from fleetrank.foundation.wording import count_of

LEAST_RATIO, MOST_RATIO = 0.95, 1.05
"""Within these the two ways count as equal: processes of one way differ by 4 to 6 %."""
MOST_SPREAD = 1.5
"""Largest over smallest ratio: five pairs of such processes have about 1.2."""
_READ = (
    ("clock cap", "clock_cap_mhz"), ("battery", "battery_percent"), ("temperature", "temp_c"),
)  # fmt: skip

Cpus = tuple[int, ...] | None
Outputs = OutputComparison | str
"""Those of the device beside those of this host; text says why they are not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A proof as the device's file stores it; registering the device again drops it.

    Attributes:
        utc: its end.
        bare_ns: latency of each bare run, as of `figure_ns`.
        fleetrank_ns: latency of fleetrank's run in the same pair.
        ratio: fleetrank's over the bare latency: the median over the pairs.
        low: the smallest of the pairs' ratios; `high` is the largest.
        outputs: how the device's outputs compare with those of this host, or why they do not.
        placement: `65 of 65` nodes on the backend, a word such as `complete`, or `not known`.
        cores: those it ran on, beside those that were asked for.
        read: which conditions were read and which not: `clock cap read; battery not read`.
        findings: what is wrong; empty if the figures are right.
    """

    __pydantic_config__ = NO_OTHER_KEYS

    utc: str
    bare_ns: tuple[int, ...]
    fleetrank_ns: tuple[int, ...]
    ratio: float
    low: float
    high: float
    outputs: str
    placement: str
    cores: str
    read: str
    findings: tuple[str, ...]

    @property
    def n_pairs(self) -> int:
        """Pairs of runs."""
        return len(self.bare_ns)


def figure_ns(seen: Measurement) -> int | None:
    """The latency that is compared: the median of the samples, or else the mean of a tool.

    Each version of a tool prints its mean, but the median only in some of its forms.
    """
    mean_ns = None if seen.summary is None else seen.summary.mean_ns
    return seen.latency_ns if mean_ns is None else mean_ns


def proof_line(proof: Proof) -> str:
    """The proof in one line, without its findings.

    The range of n pairs misses the median ratio only if all lie on one side of it, so its
    confidence is 1 - 2 / 2^n: 93.75 % for five.
    """
    bare, ours = (median(one) / NS_PER_MS for one in (proof.bare_ns, proof.fleetrank_ns))
    confidence = 100 * (1 - 2 * 0.5**proof.n_pairs)
    return (
        f"bare {bare:.3g} ms, fleetrank {ours:.3g} ms, "
        f"ratio {proof.ratio:.2f} ({proof.low:.2f} to {proof.high:.2f}, the range of "
        f"{count_of(proof.n_pairs, 'pair')}, a {confidence:.4g} % interval); "
        f"outputs {proof.outputs}; placement {proof.placement}; cores {proof.cores}; {proof.read}"
    )


def proof_words(proof: Proof) -> str:
    """The ratio and what is wrong, for a cell of a table."""
    found = f"{proof.ratio:.2f} ({proof.low:.2f} to {proof.high:.2f})"
    return "; ".join((found, *proof.findings))


def proof_of(
    pairs: Sequence[tuple[int, int]], last: Measurement, asked: Cpus, outputs: Outputs
) -> Proof:
    """Judges the pairs.

    Args:
        pairs: latency in ns of the bare run and of fleetrank's; above 0.
        last: fleetrank's last run.
        asked: CPUs that both were pinned to; `None` left it to the system.
        outputs: of the device beside those of this host, or why they are not compared.
    """
    ratios = [ours / bare for bare, ours in pairs]
    worker, state = last.worker or WorkerFacts(), last.conditions_after or Conditions()
    placement = dict(worker.settings).get("delegate_placement", "not known")
    if last.backend_nodes is not None and last.graph_nodes is not None:
        placement = f"{last.backend_nodes} of {last.graph_nodes}"
    unread = [field for _, field in _READ if getattr(state, field) is None]
    return Proof(
        utc=utc_now(),
        bare_ns=tuple(bare for bare, _ in pairs),
        fleetrank_ns=tuple(ours for _, ours in pairs),
        ratio=round(median(ratios), 4),
        low=round(min(ratios), 4),
        high=round(max(ratios), 4),
        outputs=_outputs_text(outputs),
        placement=str(placement),
        cores=_cores_text(asked, worker.affinity),
        read="; ".join(f"{name} {'not ' * (field in unread)}read" for name, field in _READ),
        findings=tuple(_findings(ratios, asked, worker.affinity, outputs)),
    )


def _findings(ratios: Sequence[float], asked: Cpus, got: Cpus, outputs: Outputs) -> Iterator[str]:
    ratio, low, high = median(ratios), min(ratios), max(ratios)
    is_equal = LEAST_RATIO <= ratio <= MOST_RATIO
    if not is_equal and not low <= 1 <= high:
        limits = f"not within {LEAST_RATIO:g} to {MOST_RATIO:g}"
        yield f"fleetrank's way differs from the bare way: ratio {ratio:.2f}, {limits}"
    elif not is_equal or high > MOST_SPREAD * low:
        yield f"the pairs vary too much to tell: ratios of {low:.2f} to {high:.2f}; prove it again"
    if not isinstance(outputs, str) and not outputs.is_equal:
        yield f"its outputs differ from those of this host: {outputs.reason}"
    if asked and got and {*asked} != {*got}:
        yield f"it ran on cores {_cores_text(asked, got)}"


def _outputs_text(outputs: Outputs) -> str:
    if isinstance(outputs, str):
        return f"not compared ({outputs})"
    if not outputs.is_equal:
        return f"differ ({outputs.reason})"
    error = outputs.max_relative_error
    how = f"to {error:.0e}".replace("e-0", "e-") if error else "in every bit"
    return f"equal to this host's {how}"


def _cores_text(asked: Cpus, got: Cpus) -> str:
    wanted, used = (None if one is None else cpu_list(one) for one in (asked, got))
    if used is None or wanted is None:
        return f"{used or 'not read'}, {wanted or 'any'} asked"
    return f"{used} as asked" if used == wanted else f"{used}, not {wanted}"
