"""A board's own text as values, whether it is ready for a repeat, and what slowed it; pure.

`there.readings` reads the text on the board.
Sources: Documentation/admin-guide/pm/cpufreq.rst and
    Documentation/driver-api/thermal/sysfs-api.rst of the Linux kernel; os-release(5); NVIDIA
    Jetson Linux Developer Guide, `nvpmodel -q`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.agent import Cluster, read_fields
from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.device_output import (
    CLOCK_MHZ,
    Throttled,
    degrees_c,
    lines_of,
    parse_throttled,
    whole_number,
)
from fleetrank.device_agents.errors import (
    AgentError,
    NotFitError,
    PermanentError,
    UnusableDeviceError,
)
from fleetrank.device_agents.flags import NOTHING_SLOWS
from fleetrank.device_agents.linux.cores import clusters_by_kind, order_by_core, parse_designs
from fleetrank.foundation.cpus import parse_cpu_list
from fleetrank.foundation.vocabulary import Flag, Runtime, Tier

ONLY_GPU = "only"
TURN_S = 60.0
"""How long a board lets a task wait for that of another driver; two drivers that only ask again
could miss turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardOptions:
    """How to reach a board, what was found on it, and when it is ready.

    Attributes:
        ssh: the board's name for ssh: HOST, USER@HOST or an alias.
        ssh_config: file in place of `~/.ssh/config`. ssh runs the programs that it names, which is
            as much as `reserve` of the same device file can do, so it needs no separate wall.
        python: name or path of Python 3.10 or newer there, with NumPy and the runtimes.
        board_hash: hash of its serial number at registration; another board is rejected.
        runtimes: found at registration, joined by commas; `None` if it was not registered.
        cpus: CPUs that a program may use there; `None` if unknown.
        caps_mhz: highest clock allowed at registration, of each frequency policy in its order,
            joined by commas; empty if the board reports none.
        power_mode: of a Jetson at registration: latencies differ by mode.
        gpu: the device is not the board's processor but this NVIDIA GPU or MIG instance: its UUID
            or the beginning of it; `only` for the only one.
        gpu_others: if other processes use the GPU, `refuse` waits and `flag` measures beside them.
        tier: `edge`, or `cpu` or `gpu` for a larger machine.
        min_cap_share: the allowed clock as a share of that at registration. Source: the same limit
            as for phones, `android.state.fitness`.
        max_temp_c: of the hottest sensor before a repeat. Source: raspberrypi/documentation: the
            clock falls from 80 C on; 10 C less leave room for the repeat.
        canary_tolerance: least accepted deviation of the canary from its registration. Source:
            medians of repeats within 15 % agree, as for the flag `repeats_disagree`.
        max_wait_s: how long a repeat is put off while the board is away, hot, slowed or in use.
        reconnect_s: how long to try again after the connection ended during a repeat.
    """

    ssh: str
    ssh_config: str | None = None
    python: str = "python3"
    board_hash: str | None = None
    runtimes: str | None = None
    cpus: int | None = None
    caps_mhz: str | None = None
    power_mode: str | None = None
    gpu: str | None = None
    gpu_others: str = "refuse"
    tier: str = Tier.EDGE.value
    min_cap_share: float = 0.85
    max_temp_c: float = 70.0
    canary_tolerance: float = 0.15
    max_wait_s: float = 600.0
    reconnect_s: float = 120.0

    @property
    def gpu_options(self) -> dict[str, OptionValue] | None:
        """The options of a `cuda` device on the board; `None` for its processor."""
        if self.gpu is None:
            return None
        chosen: dict[str, OptionValue] = {} if self.gpu == ONLY_GPU else {"uuid": self.gpu}
        return {**chosen, "others": self.gpu_others}

    @property
    def found_runtimes(self) -> frozenset[str] | None:
        """The runtimes at registration; `None` if unknown."""
        return None if self.runtimes is None else frozenset(filter(None, self.runtimes.split(",")))

    @property
    def registered_caps_mhz(self) -> tuple[float, ...]:
        """The caps at registration; empty if unknown."""
        return tuple(float(mhz) for mhz in (self.caps_mhz or "").split(",") if mhz)


def read_options(options: Mapping[str, OptionValue]) -> BoardOptions:
    """Reads the options of a device file.

    Raises:
        PermanentError: an unknown or missing name, or a value that it cannot have.
    """
    read = read_fields(BoardOptions, "board", options)
    if read.tier not in set(Tier):
        raise PermanentError(
            f"option tier is {read.tier!r}", f"use one of: {', '.join(sorted(Tier))}"
        )
    if read.gpu_others not in ("refuse", "flag"):
        raise PermanentError(
            f"option gpu_others is {read.gpu_others!r}", "set it to refuse or flag"
        )
    unknown = (read.found_runtimes or frozenset()) - set(Runtime)
    if unknown:
        raise PermanentError(
            f"option runtimes names {min(unknown)!r}", f"use: {', '.join(sorted(Runtime))}"
        )
    try:
        _ = read.registered_caps_mhz
    except ValueError as error:
        raise PermanentError(
            f"option caps_mhz is {read.caps_mhz!r}", "give numbers joined by commas"
        ) from error
    return read


Text = Mapping[str, str]
"""By path below the root, or by the words of a command."""

_POLICY = re.compile(r"sys/devices/system/cpu/cpufreq/policy(\d{1,4})/(\w+)", re.ASCII)
_ZONE = re.compile(r"sys/class/thermal/thermal_zone(\d{1,4})/temp", re.ASCII)
_SIBLINGS = re.compile(r"sys/devices/system/cpu/cpu(\d{1,4})/topology/.+", re.ASCII)
_COUNT = re.compile(r"sys/class/hwmon/hwmon\d+/(oc\d+_event_cnt)", re.ASCII)
_MODE = re.compile(r"^NV Power Mode: ?(\S.{0,40})$", re.MULTILINE)
_ARM_CLOCK = re.compile(r"frequency\(\d+\)=(\d{1,12})", re.ASCII)
_PRETTY = re.compile(r'^PRETTY_NAME="?([^"\n]{1,80})', re.MULTILINE)
_NO_ALARM = {"PMIC-Die": 100_000}
"""Type of a zone to the value that does not measure: this chip only shows alarms, at 120 and 140 C.

Source: drivers/thermal/max77620_thermal.c of the Linux kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One frequency policy: CPUs that share a clock. Clocks in MHz, `None` if unknown."""

    cpus: tuple[int, ...] = ()
    max_mhz: float | None = None
    cap_mhz: float | None = None
    now_mhz: float | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardState:
    """The state of a board at one moment; missing facts are `None` or empty.

    Attributes:
        policies: by the number in their name, ascending.
        temp_c: the hottest thermal zone that measures.
        throttled: of a Raspberry Pi.
        arm_clock_mhz: the real clock of a Raspberry Pi; the kernel shows the requested one.
        power_mode: of a Jetson.
        over_currents: events since boot, by name.
    """

    policies: tuple[Policy, ...] = ()
    temp_c: float | None = None
    throttled: Throttled | None = None
    arm_clock_mhz: float | None = None
    power_mode: str | None = None
    over_currents: tuple[tuple[str, int], ...] = ()

    @property
    def caps_mhz(self) -> tuple[float, ...]:
        """The highest clock allowed now, of each policy; empty if one is unknown."""
        caps = tuple(policy.cap_mhz for policy in self.policies if policy.cap_mhz is not None)
        return caps if len(caps) == len(self.policies) else ()


def parse_state(text: Text) -> BoardState:
    """Reads `there.readings.read_state_text`.

    Raises:
        BadOutputError: a clock or a temperature that no board has.
    """
    return BoardState(
        policies=parse_policies(text),
        temp_c=_hottest_c(text),
        throttled=parse_throttled(text.get("vcgencmd get_throttled", "")),
        arm_clock_mhz=_arm_clock_mhz(text.get("vcgencmd measure_clock arm", "")),
        power_mode=_first(_MODE, text.get("nvpmodel -q", "")),
        over_currents=tuple(sorted(
            (match[1], count)
            for path, value in text.items()
            if (match := _COUNT.fullmatch(path)) and (count := whole_number(value)) is not None
        )),
    )  # fmt: skip


def parse_policies(text: Text) -> tuple[Policy, ...]:
    """The frequency policies, in the order of their numbers."""
    found: dict[int, dict[str, str]] = {}
    for path, value in text.items():
        if match := _POLICY.fullmatch(path):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return tuple(
        Policy(
            cpus=tuple(n for word in facts.get("related_cpus", "").split()
                       if (n := whole_number(word)) is not None),
            max_mhz=_mhz(facts.get("cpuinfo_max_freq")),
            cap_mhz=_mhz(facts.get("scaling_max_freq")),
            now_mhz=_mhz(facts.get("scaling_cur_freq")),
            governor=facts.get("scaling_governor") or None,
        )
        for _, facts in sorted(found.items())
    )  # fmt: skip


def parse_model(text: Text) -> str | None:
    """The board's name: from the device tree, or the vendor and product of a PC."""
    tree = next(iter(lines_of(text.get("proc/device-tree/model", ""))), "").strip()
    names = ("sys_vendor", "product_name")
    pc = " ".join(text.get(f"sys/class/dmi/id/{name}", "") for name in names)
    return tree or " ".join(pc.split()) or None


def parse_soc(text: Text) -> str | None:
    """The chip, such as `brcm,bcm2712`: the last name that the device tree is compatible with."""
    names = [line for line in lines_of(text.get("proc/device-tree/compatible", "")) if line]
    return names[-1] if names else None


def parse_os(text: Text) -> str | None:
    """The name of the distribution."""
    return _first(_PRETTY, text.get("etc/os-release", ""))


def parse_clusters(text: Text, usable: tuple[int, ...]) -> tuple[Cluster, ...]:
    """CPUs by their kind, one CPU of each core; empty if all are of one kind.

    Where all are of one kind, and counting from 0 gives different cores, no choice is needed.

    Args:
        text: of `there.readings.read_facts_text`.
        usable: CPUs that a program may use there.
    """
    clock = {cpu: policy.max_mhz or 0.0 for policy in parse_policies(text) for cpu in policy.cpus}
    siblings = {
        int(match[1]): parse_cpu_list(value)
        for path, value in text.items()
        if (match := _SIBLINGS.fullmatch(path))
    }
    cores, _ = order_by_core(siblings, usable)
    found = clusters_by_kind(cores, clock, parse_designs(text.get("proc/cpuinfo", "")))
    if len(found) < 2 and tuple(sorted(cores)) == tuple(range(len(cores))):
        return ()
    return found


def _hottest_c(text: Text) -> float | None:
    temps = []
    for path, value in text.items():
        millis = whole_number(value) if _ZONE.fullmatch(path) else None
        kind = text.get(path.replace("/temp", "/type"), "")
        # A zone of a part that is off shows a value that no board has; the others count.
        if millis not in (None, _NO_ALARM.get(kind)):
            temps.append(degrees_c(millis))
    return max((celsius for celsius in temps if celsius is not None), default=None)


def _arm_clock_mhz(text: str) -> float | None:
    match = _ARM_CLOCK.fullmatch(text.strip())
    return int(match[1]) / 1e6 if match else None


def _mhz(text: str | None) -> float | None:
    khz = None if text is None else whole_number(text)
    if khz is not None:
        CLOCK_MHZ.require(khz / 1000, f"{text} kHz")
    return khz / 1000 if khz else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1].strip() if match else None


def require_identity(options: BoardOptions, found: str | None) -> None:
    """Returns if the board with this identity is the registered one, or if either is unknown.

    Raises:
        UnusableDeviceError: another board answers.
    """
    if None not in (options.board_hash, found) and found != options.board_hash:
        raise UnusableDeviceError(
            f"another board answers at {options.ssh} than the one that was registered",
            "connect the right one, or register this one: `fleetrank devices add` with `ssh=HOST`",
        )


def why_unfit(state: BoardState, options: BoardOptions) -> AgentError | None:
    """Why no repeat may start now; `None` if one may. An unknown value has no influence."""
    if None not in (options.power_mode, state.power_mode) and (
        state.power_mode != options.power_mode
    ):
        return UnusableDeviceError(
            f"the board's power mode is {state.power_mode}, and was {options.power_mode} when it "
            "was registered",
            "set the mode with `sudo nvpmodel -m NUMBER`, or register the board again",
        )
    if state.throttled is not None and state.throttled.now:
        return NotFitError(
            f"the board's firmware limits it now: {_words(state.throttled.now)}",
            "use the maker's power supply for under_voltage; let it cool down for the others",
        )
    if state.temp_c is not None and state.temp_c > options.max_temp_c:
        return NotFitError(
            f"the board is at {state.temp_c:.1f} C, above {options.max_temp_c:g} C",
            "let it cool down, add a fan, or raise its option max_temp_c",
        )
    share = cap_share(state.caps_mhz, options.registered_caps_mhz)
    if share is not None and share < options.min_cap_share:
        return NotFitError(
            f"the board's clocks are limited to {share:.0%} of those at its registration",
            "let it cool down; if its settings were changed, register it again",
        )
    return None


def cap_share(caps: Sequence[float], registered: Sequence[float]) -> float | None:
    """The lowest share of a registered cap that is allowed now; `None` if they do not match."""
    if not caps or len(caps) != len(registered):
        return None
    return min(cap / before for cap, before in zip(caps, registered, strict=True))


def slowed_by(
    before: BoardState, polled: Sequence[Throttled], after: BoardState
) -> tuple[str, ...] | None:
    """The reasons that slowed the board between two states; `None` if it reports none at all.

    A bit `since boot` that was already set before proves nothing; a new one was set meanwhile.
    """
    states = [one.throttled for one in (before, after) if one.throttled is not None]
    reasons = {name for one in (*states, *polled) for name in one.now}
    if before.throttled is not None and after.throttled is not None:
        reasons |= after.throttled.since_boot - before.throttled.since_boot
    if (share := cap_share(after.caps_mhz, before.caps_mhz)) is not None and share < 1:
        reasons.add("clock_cap")
    counts = dict(before.over_currents)
    if any(count > counts.get(name, count) for name, count in after.over_currents):
        reasons.add("over_current")
    is_known = bool(states or after.over_currents or after.caps_mhz)
    return tuple(sorted(reasons)) if is_known else None


def with_state(
    measurement: Measurement, before: BoardState, polled: Sequence[Throttled], after: BoardState
) -> Measurement:
    """The measurement with the board's own readings, and the flag that follows from them."""
    reasons = slowed_by(before, polled, after)
    first = _reasons(before.throttled)
    slowed = None if reasons is None else (",".join(reasons) or NOTHING_SLOWS)
    flags = {*measurement.flags, *((Flag.THROTTLED,) if reasons else ())}
    return replace(
        measurement,
        conditions_before=_with(measurement.conditions_before, before, first),
        conditions_after=_with(measurement.conditions_after, after, slowed),
        flags=tuple(flag for flag in Flag if flag in flags),
    )


def _with(found: Conditions | None, state: BoardState, reasons: str | None) -> Conditions | None:
    if found is None:
        return None
    real_mhz, caps = state.arm_clock_mhz, state.caps_mhz
    return replace(
        found,
        temp_c=max((c for c in (found.temp_c, state.temp_c) if c is not None), default=None),
        # The kernel of a Raspberry Pi shows the clock that it asked for.
        clock_mhz=found.clock_mhz if real_mhz is None else real_mhz,
        clock_cap_mhz=max(caps, default=None),
        throttle_reasons=reasons,
    )


def _reasons(throttled: Throttled | None) -> str | None:
    if throttled is None:
        return None
    return ",".join(sorted(throttled.now)) or NOTHING_SLOWS


def _words(reasons: frozenset[str]) -> str:
    return ", ".join(sorted(reasons))
