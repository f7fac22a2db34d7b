"""Part `phases` of table `transfer`: do two workloads rank models alike, and one on two devices?

It answers "would I rank for generation by measuring prompts?".
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetrank.analysis.arrays.ranking import few_models_warning
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.agreement import Agreement, agreements, group_agreement
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    AxisRule,
    Compared,
    Level,
    axis_groups,
    axis_pairs,
    compared,
)
from fleetrank.analysis.panel.panel import LATENCY, Measure
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.foundation.vocabulary import Axis
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import IMAGE, Workload, WorkloadKind

_COLUMNS = (
    "level", "measure", "source", "target", "platform_key", "n_models", "most_models", "n_pairs",
    "n_clusters", "rho", "low", "high", "null_mean", "null_p95", "headroom", "p_value", "tau_b",
    "std_over_pairs", "reason",
)  # fmt: skip
_TWO_DEVICES = AxisRule(
    level=Level.DEVICES,
    fact="device",
    equal=("workload", "runtime", "precision", "batch"),
    grouped_by="workload",
)
ENOUGH = 0.9
"""As for a device that counts as predicted in table `choose` with `part=proxy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesResult:
    """Agreement between workloads, and between devices.

    Attributes:
        rows: latency first, then FRM; of each the means over platforms, over devices, and single
            platforms.
        workloads: those compared.
        n_models: of all workloads together.
        n_platforms: with two or more of the workloads.
        banners: notes on rows of devices that are not real.
        left_out: workloads that cannot be ranked, each with the reason.
    """

    rows: tuple[Agreement, ...]
    workloads: tuple[str, ...]
    n_models: int
    n_platforms: int
    left_out: tuple[str, ...]
    banners: tuple[str, ...] = ()

    def mean(self, level: Level, measure: str, source: str, target: str) -> Agreement | None:
        """The mean of a level; `None` if nothing was measured for it."""
        wanted = (level, measure, source, target)
        return next(
            (
                one
                for one in self.rows
                if (one.level, one.measure, one.source, one.target) == wanted
            ),
            None,
        )


def phases(session: Session) -> PhasesResult:
    """Every pair of workloads with tokens of the selected rows; made once a session.

    A selection with a workload compares the others with this one only.

    Raises:
        NoDataError: no platform has rows of two workloads with tokens.
    """
    return session.once(_phases)


def _phases(session: Session) -> PhasesResult:
    found = compared(session, Axis.WORKLOAD)
    conditions = found.conditions
    used = conditions.columns["platform_key"].to_list()
    return PhasesResult(
        rows=tuple(
            row
            for measure in conditions.measures
            for row in _rows(found, measure, session.selection.seed)
        ),
        workloads=tuple(conditions.columns["workload"].unique(maintain_order=True)),
        n_models=conditions.n_models,
        n_platforms=len({used[i] for i, _ in found.pairs}),
        left_out=conditions.left_out,
        banners=conditions.banners,
    )


def _rows(found: Compared, measure: Measure, seed: int) -> list[Agreement]:
    means, singles = [], []
    for group in found.groups:
        # The draws of two workloads do not depend on a third.
        mean, mine = agreements(replace(found, groups=(group,), pairs=group.pairs), measure, seed)
        means += mean
        singles += mine
    columns = found.conditions.columns
    shared = {name for group in found.groups for name in (group.source, group.target)}
    chosen = frozenset(
        at for at, name in enumerate(columns["workload"].to_list()) if name in shared
    )
    between = axis_pairs(columns, _TWO_DEVICES, chosen, chosen)
    means += [
        group_agreement(group, measure, seed)
        for group in axis_groups(columns, between, _TWO_DEVICES)
    ]
    return [*means, *(singles if len(singles) <= MAX_LISTED_PAIRS else ())]


def phases_table(session: Session) -> Table:
    """Rank agreement of workloads on one platform, beside that of devices.

    Raises:
        NoDataError: no platform has rows of two workloads with tokens.
    """
    found = phases(session)
    count = (
        f"{count_of(found.n_models, 'model')}, {count_of(found.n_platforms, 'platform')}, "
        f"{count_of(len(found.workloads), 'workload')}."
    )
    answer = answer_of(found)
    return Table(
        title="Phases: rankings of prompts and of steps",
        frame=frame_of(Agreement, found.rows).select(_COLUMNS),
        notes=(
            *found.banners,
            count,
            *found.left_out,
            *session.dropped_notes(one for one in session.workloads if one != str(IMAGE)),
            *((answer.sentence,) if answer else few_models_warning(found.n_models)),
        ),
        explanation=(
            *explained("transfer/phases", {"enough": ENOUGH}),
            *few_models_note(found.n_models),
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAnswer:
    """May one rank models for generation by measuring prompts?

    Attributes:
        is_yes: `None` if the interval holds the limit, or is not known.
        same_platform: prompts against steps, latency, mean over platforms.
        other_device: steps on one device against steps on another; `None` with one device.
    """

    prefill: str
    decode: str
    is_yes: bool | None
    same_platform: Agreement
    other_device: Agreement | None

    @property
    def sentence(self) -> str:
        """Question, answer and figures."""
        words = {True: "yes", False: "no", None: "not shown either way"}[self.is_yes]
        beside = "" if self.other_device is None else (
            f"; {self.decode} on two devices agrees with {_rho(self.other_device)}"
        )  # fmt: skip
        return (
            f"Would I rank for generation by measuring prompts? {words.capitalize()}: "
            f"{self.prefill} and {self.decode} on one platform agree with "
            f"{_rho(self.same_platform)}{beside}."
        )


def answer_of(found: PhasesResult) -> PhaseAnswer | None:
    """The answer for the longest cache; `None` without prompts and steps, or without a rho."""
    steps = _longest_first(found.workloads, WorkloadKind.DECODE)
    prompts = _longest_first(found.workloads, WorkloadKind.PREFILL)
    if not steps or not prompts:
        return None
    lengths = {one.length for one in prompts}
    decode = next((one for one in steps if one.length in lengths), steps[0])
    prefill = next((one for one in prompts if one.length == decode.length), prompts[0])
    mean = found.mean(Level.WORKLOADS, LATENCY, str(prefill), str(decode))
    if mean is None or mean.rho is None:
        return None
    is_open = mean.low is None or mean.high is None or mean.low < ENOUGH <= mean.high
    return PhaseAnswer(
        prefill=str(prefill),
        decode=str(decode),
        is_yes=None if is_open else (mean.low or 0.0) >= ENOUGH,
        same_platform=mean,
        other_device=found.mean(Level.DEVICES, LATENCY, str(decode), str(decode)),
    )


def _longest_first(workloads: Iterable[str], kind: WorkloadKind) -> list[Workload]:
    every = (Workload.parse(one) for one in workloads)
    mine = [one for one in every if one.kind is kind]
    return sorted(mine, key=lambda one: one.sort_key, reverse=True)


def _rho(mean: Agreement) -> str:
    if mean.rho is None:
        return "no rho"
    if mean.low is None or mean.high is None:
        return f"rho {mean.rho:.2f} (no interval)"
    return f"rho {mean.rho:.2f} ({mean.low:.2f} to {mean.high:.2f})"
