"""The events of a running sweep, as frozen values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fleetrank.analysis.stored.sweep_record import SweepState
from fleetrank.foundation.vocabulary import Origin, Precision
from fleetrank.foundation.wording import count_of, duration
from fleetrank.foundation.workload import IMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStarted:
    """The plan is ready.

    Attributes:
        n_done: repeats that an earlier run of the same sweep finished.
        estimate_s: until the end, with exports and the start of Ray.
        platforms: keys of all platforms of the plan.
    """

    sweep_id: str
    n_cells: int
    n_repeats: int
    n_done: int
    n_skipped: int
    estimate_s: float | None
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """The driver begins with something before it measures, such as starting Ray.

    Attributes:
        n_steps: how many `ExportFinished` follow; 0 for a phase without steps.
    """

    name: str
    n_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfExport:
    """What events of one export name; `workload` is `image` unless the model takes tokens."""

    model: str
    format: str
    workload: str = str(IMAGE)
    precision: str = Precision.FP32.value

    @property
    def label(self) -> str:
        """The file, as people read it."""
        what = self.model if self.workload == str(IMAGE) else f"{self.model} {self.workload}"
        unusual = "" if self.precision == Precision.FP32 else f" {self.precision}"
        return f"{what} to {self.format}{unusual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStarted(_OfExport):
    """A model is being exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFinished(_OfExport):
    """An artifact is ready, or `error` gives the reason why it is not, and `remedy` what to do."""

    seconds: float
    is_cached: bool
    error: str | None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRepeat:
    """What events of one repeat name; `origin` is the value that its rows will have."""

    device: str
    host: str
    label: str
    repeat: int
    attempt: int
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatStarted(_OfRepeat):
    """A device has started one repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatFinished(_OfRepeat):
    """One attempt has been stored; `latency_p50_ns` is `None` when it failed.

    Attributes:
        will_retry: another attempt follows, or an earlier one was counted: it does not count.
        has_no_file: it failed without a try, because its export had failed and was reported.
    """

    latency_p50_ns: float | None
    flags: tuple[str, ...]
    error: str | None
    will_retry: bool
    has_no_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWaits:
    """A device cannot be measured now; its repeat is left for later, and other devices go on.

    Ends with the next other event of the device; the same attempt then has a second
    `RepeatStarted`. Comes again with another reason, and after a minute.

    Attributes:
        reason: such as a temperature, or the failure after which the device was set aside or
            given up.
        waited_s: since it first gave a reason.
        ask_again_s: seconds until it is asked again.
        limit_s: after waiting this long in all its repeat fails; `None` if it is set aside.
        is_news: the first, or the first for a minute; lines leave the others out, and what another
            line has said.
        is_left_out: it was given up; `sweep resume` measures what is left.
    """

    device: str
    host: str
    reason: str
    waited_s: float
    ask_again_s: float
    limit_s: float | None
    is_news: bool = False
    is_left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCycled:
    """A device that was lost again and again was switched off and on.

    Attributes:
        number: counts from 1 in this run, at most to `most`.
        error: why that failed; `None` if it succeeded.
    """

    device: str
    host: str
    number: int
    most: int
    error: str | None

    @property
    def text(self) -> str:
        """For a person, in one line."""
        count = f"({self.number} of at most {self.most} times)"
        if self.error is None:
            return f"{self.device} was lost repeatedly: switched off and on {count}"
        return f"{self.device} could not be switched off and on {count}: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """Two models whose order is open, and the rounds that are needed if their figures stay.

    Attributes:
        more_rounds: `None` if they are more than a thousand, or nothing is known.
        seconds: that these take, at the pace so far.
    """

    a: str
    b: str
    more_rounds: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsMade:
    """A sweep until decided has looked at the models that it compares on one platform.

    Attributes:
        contest: workload and platform, in any precision.
        platform: key of one of these platforms, or a device whose platforms are compared.
        n: decisions that the question asks for; `n_decided` are taken.
        answer: what is known now.
        n_repeats: that follow; 0 at the end.
        is_budget_used: why none follow though pairs are open.
        is_news: a decision was taken, or this look is the last; lines leave the others out.
    """

    contest: str
    platform: str
    question: str
    margin: float
    n: int
    n_decided: int
    answer: str
    open_pairs: tuple[OpenPair, ...]
    n_repeats: int
    is_budget_used: bool = False
    is_news: bool = True

    @property
    def text(self) -> str:
        """For a person, in one line."""
        return decided(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message for the user without further effect; `level` is info or warning."""

    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFinished:
    """A run of a sweep has ended, for any reason; counts include its earlier runs.

    Attributes:
        n_failed: repeats that were tried and have no valid measurement.
        is_unreal: every device is simulated or virtual.
        n_profile_failed: profiled repeats that failed; not part of the other numbers.
        n_sets_failed: sets of processes that failed; not part of them either.
    """

    sweep_id: str
    n_ok: int
    n_failed: int
    n_left: int
    seconds: float
    is_interrupted: bool
    is_unreal: bool = False
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


Event = (
    SweepStarted
    | PhaseStarted
    | ExportStarted
    | ExportFinished
    | RepeatStarted
    | RepeatFinished
    | DeviceWaits
    | PowerCycled
    | DecisionsMade
    | Notice
    | SweepFinished
)
_MOST_PAIRS = 3
"""Open pairs that a line names."""


def decided(made: Mapping[str, Any]) -> str:
    """A look at the decisions of a platform, by the fields of `DecisionsMade`, as a line."""
    pairs = [_open_pair(one) for one in made["open_pairs"]]
    said = f"{made['n_decided']} of {count_of(made['n'], 'decision')} taken"
    parts = [f"{said} on {made['platform']}", made["answer"]]
    if pairs:
        more = [f"{len(pairs) - _MOST_PAIRS} more"] if len(pairs) > _MOST_PAIRS else []
        parts.append(f"open: {', '.join([*pairs[:_MOST_PAIRS], *more])}")
    if made["n_repeats"]:
        parts.append(f"{count_of(made['n_repeats'], 'more repeat')} now")
    elif pairs:
        used = "the budget is" if made["is_budget_used"] else "all repeats are"
        parts.append(f"{used} used")
    return "; ".join(parts)


def _open_pair(pair: Mapping[str, Any]) -> str:
    rounds, seconds = pair["more_rounds"], pair["seconds"]
    if rounds is None:
        more = "over 1,000 more rounds"
    else:
        more = f"about {count_of(rounds, 'more round')}, {duration(seconds)}"
    return f"{pair['a']} against {pair['b']} ({more})"
