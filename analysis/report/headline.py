"""The answers at the top of the page: one sentence each, with its figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.panel.conditions import Level
from fleetrank.analysis.report.page_tables import Evidence, PageTables
from fleetrank.analysis.statistics.language import answer_of
from fleetrank.analysis.statistics.predictability import (
    ALL,
    FamilyMedians,
    FamilyPrediction,
    PredictabilityResult,
)
from fleetrank.analysis.statistics.transfer import TransferResult
from fleetrank.analysis.statistics.transfer_within import Inside, is_below
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS
from fleetrank.analysis.tables.formats import MISSING
from fleetrank.foundation.errors import count_of, with_flags
from fleetrank.foundation.inputs import IMAGE

_OF_PHASES = {True: "good", False: "poor", None: "open"}
TIER_NAMES = {"gpu": "GPUs", "cpu": "CPUs", "edge": "edge devices"}
_CARRIES, _MISLEADS = 0.9, 0.6
"""An order can be trusted from the first rank correlation on and misleads below the second: at 0.9
two of 13 models move by about two ranks, at 0.6 every second model does. The limits are our
choice."""
_MAX_HEADLINES = 6
"""Three tiers make three pairs of two tiers and three pairs of a tier with itself."""
READING = (
    "Rho is Spearman's rank correlation over the models that two platforms share: 1 is the same "
    "order, 0 means unrelated. FLOPs are the same on every platform, so the orders agree as far as "
    "FLOPs explain latency. The residual null is rho if only this part of latency transfers. "
    "Only a rho that exceeds it shows that more than FLOPs transfers."
)


class Verdict(StrEnum):
    """How far an answer can be trusted; the style sheet has a colour for each level."""

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """One number with its name and a detail."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One answer."""

    verdict: Verdict
    kicker: str
    sentence: str
    figures: tuple[KeyFigure, ...] = ()
    note: str | None = None


def headlines(found: Sequence[TransferResult], why_none: str) -> list[Headline]:
    """At most six answers: between tiers, or else between runtimes of one device.

    Args:
        found: rank transfer, then framework invariance, if they could be computed.
        why_none: the reason if no answer exists.
    """
    for result in found:
        latency = _of_measure(result, "latency")
        frm = {(one.source, one.target): one for one in _of_measure(result, "frm")}
        if latency:
            first = sorted(latency, key=lambda one: interest(one.source, str(one.target)))
            return [
                _headline(one, frm.get((one.source, one.target)), _inside(result, one))
                for one in first[:_MAX_HEADLINES]
            ]
    return [
        Headline(
            verdict=Verdict.OPEN,
            kicker="rank transfer",
            sentence="These results cannot show whether a ranking carries over.",
            note=why_none,
        )
    ]


def _of_measure(result: TransferResult, measure: str) -> list[Agreement]:
    return [one for one in result.groups if one.measure == measure]


def interest(source: str, target: str) -> tuple[bool, bool, bool]:
    """Sort key of pairs of tiers: pairs with edge devices come first, a tier with itself last."""
    return source == target, "edge" not in (source, target), target != "edge"


def _inside(result: TransferResult, group: Agreement) -> list[Agreement]:
    """Where rho over all models says too much: alike models whose order may not carry over."""
    between = group.source, group.target
    return [
        one
        for one in result.within
        if (one.source, one.target) == between
        and is_below(one)
        and (one.low is None or one.low < _CARRIES)
    ]


def _headline(latency: Agreement, frm: Agreement | None, inside: Sequence[Agreement]) -> Headline:
    is_tier = latency.level is Level.TIER
    names = latency.source, str(latency.target)
    source, target = (TIER_NAMES.get(name, name) if is_tier else name for name in names)
    between = f"between {source} and {target}"
    if source == target:
        between = f"among {source}"
    models = f"{latency.models_text}, {count_of(latency.n_pairs or 0, 'pair')}"
    notes = [_inside_sentence(one) for one in inside]
    if frm is not None and frm.rho is None:
        notes.append(f"FRM: {frm.reason}.")
    return Headline(
        verdict=_verdict(latency),
        kicker=f"{between}, {models} of platforms" + ("" if is_tier else " on one device"),
        sentence=_sentence(latency, between),
        figures=_key_figures(latency, frm),
        note=" ".join(notes) or None,
    )


def _inside_sentence(one: Agreement) -> str:
    inside = next(word for word in Inside if word.measure == one.measure)
    return (
        f"Among models of one {inside.one} rho is {_rho(one.rho)} ({_rho(one.low)} to "
        f"{_rho(one.high)}), lower than over all {inside}: do not choose among them by this "
        "order."
    )


def _verdict(one: Agreement) -> Verdict:
    """Follows the interval; an order that FLOPs explain shows nothing beyond FLOPs."""
    if one.rho is None or one.low is None or one.high is None:
        return Verdict.OPEN
    if one.low >= _CARRIES:
        return Verdict.FAIR if one.exceeds_flops is False else Verdict.GOOD
    return Verdict.POOR if one.high < _MISLEADS else Verdict.FAIR


def _sentence(one: Agreement, between: str) -> str:
    if one.rho is None:
        return f"Whether latency ranks agree {between} is unknown: {one.reason or 'no value'}."
    rho = f"rho {_rho(one.rho)}"
    if one.low is None or one.high is None:
        return (
            f"{one.models_text} {between} give {rho} for latency ranks. These "
            "are too few models for an interval: the figure is only a hint."
        )
    interval = f"{_rho(one.low)} to {_rho(one.high)}"
    # Rounding must not make the claim stronger than the bound.
    least, most = math.floor(100 * one.low) / 100, math.ceil(100 * one.high) / 100
    if one.high < _MISLEADS:
        return f"Latency ranks do not carry over {between}: {rho}, at most {_rho(most)}."
    return _agreement(one, between, f"{rho}, at least {_rho(least)}", f"{rho}, interval {interval}")


def _agreement(one: Agreement, between: str, least: str, interval: str) -> str:
    """What an order shows that may carry over; `least` and `interval` are rho in words."""
    explained = " FLOPs alone can explain this." if one.exceeds_flops is False else ""
    if one.low is not None and one.low >= _CARRIES:
        agree = "agree" if explained else "carry over"
        return f"Latency ranks {agree} {between}: {least}.{explained}"
    if one.low is not None and one.low >= _MISLEADS:
        return f"Latency ranks partly carry over {between}: {interval}.{explained}"
    return (
        f"Whether latency ranks carry over {between} is undecided: {interval} over "
        f"{one.models_text}."
    )


def _key_figures(latency: Agreement, frm: Agreement | None) -> tuple[KeyFigure, ...]:
    """Rho and its null side by side, a line for each measure."""
    measured = {"latency": latency} | ({} if frm is None else {"FRM": frm})
    found = []
    for name, one in measured.items():
        interval = f"{_rho(one.low)} to {_rho(one.high)} (95 %)"
        known = "no interval" if one.low is None or one.high is None else interval
        found.append(KeyFigure(name=f"{name}, rho", value=_rho(one.rho), detail=known))
        found.append(_residual_null(name, one))
    return tuple(found)


def _residual_null(name: str, one: Agreement) -> KeyFigure:
    """Rho if only FLOPs transfer, and whether the measured one exceeds it."""
    detail = "FLOPs of some models are unknown" if one.rho is not None else ""
    if one.residual_p is not None:
        verdict = "exceeded" if one.exceeds_flops else "not exceeded"
        detail = f"{verdict}, p = {one.residual_p:.2g}"
    return KeyFigure(
        name=f"{name}, residual null", value=_rho(one.residual_null_mean), detail=detail
    )


def _rho(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLine:
    """One family's sentence."""

    family: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLines:
    """Sentences of all families about one pair of tiers, or all pairs of platforms."""

    about: str
    lines: tuple[FamilyLine, ...]


def family_lines(found: PredictabilityResult | None) -> FamilyLines | None:
    """Sentences about the pair of tiers shown first on the page.

    Without a pair of tiers they are medians over pairs of platforms; `None` without any pair.
    """
    if found is None:
        return None
    directions = dict.fromkeys((one.source, one.target) for one in found.groups)
    rows: Sequence[FamilyPrediction | FamilyMedians]
    if directions:
        source, target = min(directions, key=lambda pair: interest(*pair))
        rows = [one for one in found.groups if (one.source, one.target) == (source, target)]
        about = f"from {TIER_NAMES[source]} to {TIER_NAMES[target]}"
    else:
        rows = found.medians_over_pairs()
        n_pairs = len({(one.source, one.target) for one in found.pairs})
        about = f"medians over {count_of(n_pairs, 'pair')} of platforms, source to target"
    lines = tuple(
        FamilyLine(family=one.family.replace("_", " "), sentence=_family_sentence(one))
        for one in rows
        if one.family != ALL and one.n_models > 0
    )
    return FamilyLines(about=about, lines=lines) if lines else None


def _family_sentence(one: FamilyPrediction | FamilyMedians) -> str:
    parts = [count_of(one.n_models, "model")]
    if one.rho is not None:
        parts.append(f"rho {one.rho:.2f} inside the family")
    elif one.n_models < MIN_MODELS:
        parts.append("too few for a rank correlation")
    else:
        parts.append("no rank correlation")
    if one.mean_abs_shift is not None:
        parts.append(f"average rank change {one.mean_abs_shift:.1f}")
    if one.mean_error_percent is not None:
        error = one.mean_error_percent
        parts.append(f"its latency is predicted with a mean error of {error:.0f} %")
    return ", ".join(parts)


def phase_headlines(tables: PageTables) -> list[Headline]:
    """The answer to "would I rank for generation by measuring prompts?", if there is one."""
    answer = None if tables.phases is None else answer_of(tables.phases)
    if answer is None or tables.phases is None:
        return []
    same, other = answer.same_platform, answer.other_device
    figures = [
        KeyFigure(
            name="on one platform, rho", value="none" if same.rho is None else f"{same.rho:.2f}"
        )
    ]
    if other is not None:
        figures.append(
            KeyFigure(
                name="steps on two devices, rho",
                value="none" if other.rho is None else f"{other.rho:.2f}",
            )
        )
    platforms = count_of(tables.phases.n_platforms, "platform")
    return [
        Headline(
            verdict=Verdict(_OF_PHASES[answer.is_yes]),
            kicker=f"{answer.prefill} and {answer.decode}, {same.models_text}, {platforms}",
            sentence=answer.sentence,
            figures=tuple(figures),
        )
    ]


def other_workloads(evidence: Evidence) -> str:
    """Which workload the page is about, and how to see the others; empty for images alone."""
    others = [one for one in evidence.workloads if one != evidence.workload]
    if evidence.workload == str(IMAGE) and not others:
        return ""
    about = f"This page is about workload {evidence.workload}."
    if not others:
        return about
    is_real = set(evidence.selection.origins) <= set(DEFAULT_ORIGINS)
    unreal = "" if is_real else " and `include_simulated=true`"
    command = with_flags(f"`fleetrank report build` with `workload={others[0]}`{unreal}")
    return f"{about} The results also have {', '.join(others)}: make another page with {command}."
