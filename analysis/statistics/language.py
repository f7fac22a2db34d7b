"""Part `phases` of table `transfer`: do two workloads rank models alike, and one on two devices?

It answers "would I rank for generation by measuring prompts?".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.arrays.ranking import few_models_note, few_models_warning
from fleetrank.analysis.errors import AnalysisError, NoDataError
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
from fleetrank.analysis.stored.cell_values import banners
from fleetrank.analysis.stored.selection import named, setting
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.inputs import IMAGE, LARGEST_LENGTH, Workload, WorkloadKind
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, NS_PER_S, Axis

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


# Tables `tokens` and `end-to-end`: what a language model costs for each token and each answer.
#
# A whole answer is a prompt of P tokens, then N - 1 steps, from measured parts.

_MJ_PER_J = 1e3
_MIB = {
    "weights_mib": "weight_bytes", "state_mib": "state_bytes", "moved_mib": "bytes_moved",
    "peak_memory_mib": "peak_memory_bytes",
}  # fmt: skip
NAMES: Mapping[WorkloadKind, str] = MappingProxyType(
    {
        WorkloadKind.PREFILL: "ttft",
        WorkloadKind.DECODE: "itl",
        WorkloadKind.GENERATE: "itl",
        WorkloadKind.SEGMENT: "segment",
        WorkloadKind.ENCODE: "latency",
    }
)
"""What the latency of a workload is called: it begins the columns of table `tokens`."""
MEANINGS: Mapping[WorkloadKind, str] = MappingProxyType(
    {
        WorkloadKind.PREFILL: "Latency is the time to first token (TTFT): one pass over the prompt "
        "into an empty cache, with the logits of its last token; no tokenising and no sampling.",
        WorkloadKind.DECODE: "Latency is the inter-token latency (ITL): one step at the last slot "
        "of a full cache, which gives each sequence of the batch one token; no sampling.",
        WorkloadKind.GENERATE: "Latency is the inter-token latency (ITL) of the steps after the "
        "prompt; ttft is the time of the prompt.",
        WorkloadKind.SEGMENT: "Latency is the time to read one segment of a long text: a summary "
        "of its first half, recall from the memories, and one pass; rates count new tokens.",
        WorkloadKind.ENCODE: "Latency is one forward pass over the tokens.",
    }
)


def tokens_table(session: Session) -> Table:
    """Tokens per second, energy for each token, MFU and MBU of each model on each platform.

    Raises:
        NoDataError: the rows are of a workload without tokens.
    """
    workload = workload_with_tokens(session)
    scope = session.cells
    name, has_prompt = NAMES[workload.kind], workload.kind is WorkloadKind.GENERATE
    latency_s = pl.col("latency_ns") / NS_PER_S
    batch_flops = pl.col("flops") * pl.col("batch")
    per_s = pl.col("tokens_per_inference") / latency_s
    moved = pl.col("bytes_moved")
    # Prompts and steps have unlike rates, so the phase is in the name.
    kind = workload.kind
    phase = WorkloadKind.DECODE if kind is WorkloadKind.GENERATE else kind
    # A figure over a latency, a peak or bytes of 0 is null.
    floats = pl.selectors.float()
    shown = scope.cells.select(
        "model", "platform_key",
        (pl.col("latency_ns") / NS_PER_MS).alias(f"{name}_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias(f"{name}_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias(f"{name}_high_ms"),
        *([(pl.col("ttft_ns") / NS_PER_MS).alias("ttft_p50_ms")] if has_prompt else []),
        per_s.alias(f"{phase}_tokens_per_s"),
        (pl.col("energy_mj") / _MJ_PER_J / pl.col("tokens_per_inference")).alias("j_per_token"),
        (batch_flops / latency_s / (pl.col("peak_gflops") * 1e9)).alias("mfu"),
        (moved / latency_s / (pl.col("peak_gbps") * 1e9)).alias("mbu"),
        (batch_flops / moved).alias("flops_per_byte"),
        *((pl.col(source) / BYTES_PER_MIB).alias(shown) for shown, source in _MIB.items()),
        "n_repeats", "flags", pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    return Table(
        title=f"Tokens, {workload}",
        frame=shown.with_columns(pl.when(floats.is_finite()).then(floats)),
        notes=(*scope.notes, MEANINGS[workload.kind]),
        explanation=explained("tokens/rates"),
    )


def workload_with_tokens(session: Session) -> Workload:
    """The workload of the session.

    Raises:
        NoDataError: it is `image`, or a step of training.
    """
    workload = session.workload
    if workload.kind is WorkloadKind.TRAIN:
        raise NoDataError(
            f"workload {workload} is a step of training, not an inference",
            "choose another workload, or `fleetrank report show latency` with `part=training`",
        )
    if workload.kind is WorkloadKind.IMAGE:
        raise NoDataError(
            "the selected rows are of workload image, which has no tokens",
            "measure a language model, or choose a workload such as `workload=decode@128`",
        )
    return workload


PROMPT, GENERATED = 128, 32
"""Tokens of the prompt and of the answer, unless the user gives others."""
_PLACE = ("model", "platform_key")
_PARTS = (WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.GENERATE)


_REASON = pl.concat_str(
    [
        pl.when(pl.col(name).is_null()).then(pl.lit(f"no {what} with room was measured"))
        for name, what in (("latency_ns", "prompt"), ("latency_ns_step", "step"))
    ],
    separator="; ",
    ignore_nulls=True,
).replace("", None)


def end_to_end_table(session: Session) -> Table:
    """Time to first token, time of each further one, and their sum, for each model and platform.

    Raises:
        AnalysisError: a number of tokens is not a whole number from 1.
        NoDataError: no prompt, or no cache, with room for the tokens was measured.
    """
    prompt = _tokens(session, "prompt", PROMPT)
    generated = _tokens(session, "generated", GENERATED)
    known = [Workload.parse(one) for one in session.workloads]
    prefill = _smallest(session, known, WorkloadKind.PREFILL, prompt)
    decode = _smallest(session, known, WorkloadKind.DECODE, prompt + generated)
    parts = prefill.join(
        decode.drop("origin", "device"), on=_PLACE, how="full", coalesce=True, suffix="_step"
    )
    whole = Workload(kind=WorkloadKind.GENERATE, length=prompt, generated=generated)
    joined = parts.join(_whole(session, whole), on=_PLACE, how="left").sort(_PLACE)
    shown = joined.select(*_PLACE, *_figures(generated), _REASON.alias("reason"))
    n_known = shown.height - shown["end_to_end_ms"].null_count()
    return Table(
        title=f"End to end: {prompt} + {generated} tokens",
        frame=shown,
        notes=(
            *banners(pl.concat([prefill, decode])),
            f"{n_known} of {shown.height} models on platforms have both parts.",
            *session.dropped_notes(str(one) for one in known if one.kind in _PARTS),
        ),
        explanation=explained("tokens/request"),
    )


def _tokens(session: Session, name: str, usual: int) -> int:
    value = setting(session.selection, name, float(usual))
    if value != int(value) or not 1 <= value <= LARGEST_LENGTH:
        raise AnalysisError(
            f"{name}={value:g} is not a number of tokens",
            f"give a whole number from 1 to {LARGEST_LENGTH:,}, such as `set {name}={usual}`",
        )
    return int(value)


def _smallest(
    session: Session, known: Iterable[Workload], kind: WorkloadKind, least: int
) -> pl.DataFrame:
    """The cells of a kind; of each place the shortest workload with room for so many tokens."""
    fits = [one for one in known if one.kind is kind and (one.length or 0) >= least]
    shortest_first = sorted(fits, key=lambda one: one.length or 0)
    found = [cells for one in shortest_first if (cells := _cells(session, one)) is not None]
    if not found:
        have = named([str(one) for one in known]) or "none"
        failed = named([str(one) for one in shortest_first])
        raise NoDataError(
            f"no measured {kind} has room for {least:,} tokens; the results have {have}"
            + (f", and no valid attempt of {failed}" if failed else ""),
            f"measure {kind}@{least}, or ask for fewer tokens with `set prompt={PROMPT}` and "
            f"`set generated={GENERATED}`",
        )
    return pl.concat(found).unique(_PLACE, keep="first", maintain_order=True)


def _cells(session: Session, workload: Workload) -> pl.DataFrame | None:
    if (cells := session.cells_of(str(workload))) is None:
        return None
    unique = cells.filter(pl.len().over(_PLACE) == 1)
    return unique.select(
        *_PLACE,
        "workload",
        "origin",
        "device",
        "latency_ns",
        "latency_low_ns",
        "latency_high_ns",
        "ttft_ns",
    )


def _whole(session: Session, wanted: Workload) -> pl.DataFrame:
    """`generate_ns` of cells that measured the whole answer; empty without any."""
    steps = (wanted.generated or 1) - 1
    total = (pl.col("ttft_ns") + steps * pl.col("latency_ns")).alias("generate_ns")
    if (cells := _cells(session, wanted)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_PLACE, pl.String) | {"generate_ns": pl.Float64})
    return cells.select(*_PLACE, total)


def _figures(generated: int) -> list[pl.Expr]:
    steps = generated - 1
    sums = {
        "end_to_end_ms": "latency_ns",
        "end_to_end_low_ms": "latency_low_ns",
        "end_to_end_high_ms": "latency_high_ns",
    }
    total = pl.col("latency_ns") + steps * pl.col("latency_ns_step")
    return [
        pl.col("workload").alias("prompt_workload"),
        pl.col("workload_step").alias("step_workload"),
        (pl.col("latency_ns") / NS_PER_MS).alias("ttft_ms"),
        (pl.col("latency_ns_step") / NS_PER_MS).alias("itl_ms"),
        *(
            ((pl.col(name) + steps * pl.col(f"{name}_step")) / NS_PER_MS).alias(shown)
            for shown, name in sums.items()
        ),
        (pl.col("generate_ns") / NS_PER_MS).alias("generate_ms"),
        pl.when(pl.col("generate_ns") > 0).then(total / pl.col("generate_ns"))
        .alias("parts_to_generate"),
    ]  # fmt: skip
