"""The text of boards as values.

The texts are as the makers' documents and public issues print them: raspberrypi/documentation
(`vcgencmd`), Jetson Linux Developer Guide (`nvpmodel -q`), the kernel's sysfs documents, and the
core numbers of Rockchip's RK3588 (four Cortex-A55 first, then four Cortex-A76).
"""

from dataclasses import replace

import pytest

from fleetrank.device_agents.board.board_state import (
    BoardOptions,
    parse_clusters,
    parse_model,
    parse_os,
    parse_soc,
    parse_state,
    slowed_by,
    why_unfit,
    with_state,
)
from fleetrank.device_agents.canary import canary_ns
from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import CanaryTask
from fleetrank.device_agents.device_output import parse_throttled
from fleetrank.device_agents.errors import BadOutputError, NotFitError, UnusableDeviceError
from fleetrank.foundation.vocabulary import Flag, Origin, Status

CPUFREQ = "sys/devices/system/cpu/cpufreq"
PI5 = {
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0",
    "proc/device-tree/compatible": "raspberrypi,5-model-b\nbrcm,bcm2712",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"',
    "proc/cpuinfo": "\n\n".join(
        f"processor\t: {n}\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b" for n in range(4)
    ),
    f"{CPUFREQ}/policy0/related_cpus": "0 1 2 3",
    f"{CPUFREQ}/policy0/cpuinfo_max_freq": "2400000",
    f"{CPUFREQ}/policy0/scaling_max_freq": "2400000",
    f"{CPUFREQ}/policy0/scaling_cur_freq": "1500000",
    f"{CPUFREQ}/policy0/scaling_governor": "ondemand",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": "52300",
    "vcgencmd get_throttled": "throttled=0x0",
    "vcgencmd measure_clock arm": "frequency(0)=1500019456",
}
RK3588 = {
    f"{CPUFREQ}/policy{first}/{name}": value
    for first, cpus, mhz in ((0, "0 1 2 3", 1800), (4, "4 5", 2400), (6, "6 7", 2400))
    for name, value in (("related_cpus", cpus), ("cpuinfo_max_freq", f"{mhz}000"))
} | {
    "proc/cpuinfo": "\n\n".join(
        f"processor\t: {n}\nCPU part\t: {'0xd05' if n < 4 else '0xd0b'}" for n in range(8)
    )
}
ORIN = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit",
    "nvpmodel -q": "NV Power Mode: 15W\n0",
    "sys/class/hwmon/hwmon1/oc1_event_cnt": "2",
    "sys/class/hwmon/hwmon1/oc3_event_cnt": "0",
    "sys/class/thermal/thermal_zone0/temp": "48500",
    "sys/class/thermal/thermal_zone2/temp": "-256000",
}


def test_a_raspberry_pi() -> None:
    seen = parse_state(PI5)
    assert parse_model(PI5) == PI5["proc/device-tree/model"]
    assert parse_soc(PI5) == "brcm,bcm2712"
    assert parse_os(PI5) == "Debian GNU/Linux 12 (bookworm)"
    assert seen.caps_mhz == (2400.0,)
    assert seen.policies[0].governor == "ondemand"
    assert seen.temp_c == 52.3
    assert seen.arm_clock_mhz == pytest.approx(1500.019456)
    assert parse_clusters(PI5, (0, 1, 2, 3)) == ()


def cores_in(text: dict[str, str], usable: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(cluster.cores for cluster in parse_clusters(text, usable))


def test_clusters_of_unlike_cores_come_fastest_first() -> None:
    assert cores_in(RK3588, tuple(range(8))) == ((4, 5, 6, 7), (0, 1, 2, 3))
    assert cores_in(RK3588, (0, 1, 4)) == ((4,), (0, 1))


def test_cores_whose_threads_are_neighbours_are_listed_one_by_one() -> None:
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    text = {topology.format(n): "0-1" if n < 2 else "2-3" for n in range(4)}
    assert cores_in(text, (0, 1, 2, 3)) == ((0, 2),)


def test_a_jetson_s_mode_and_its_sensor_of_a_part_that_is_off() -> None:
    seen = parse_state(ORIN)
    assert seen.power_mode == "15W"
    assert seen.temp_c == 48.5
    assert seen.over_currents == (("oc1_event_cnt", 2), ("oc3_event_cnt", 0))


NANO = {
    f"sys/class/thermal/thermal_zone{number}/{name}": value
    for number, (kind, temp) in enumerate(
        [("AO-therm", "43000"), ("CPU-therm", "34500"), ("GPU-therm", "33000"),
         ("PLL-therm", "31500"), ("PMIC-Die", "100000"), ("thermal-fan-est", "34000")]
    )
    for name, value in (("type", kind), ("temp", temp))
}  # fmt: skip
"""A Jetson Nano at rest; TX2 and Xavier have the same zone of their power chip."""


def test_a_zone_that_shows_a_constant_is_no_temperature() -> None:
    seen = parse_state(NANO)
    assert seen.temp_c == 43.0
    assert why_unfit(seen, BoardOptions(ssh="nano")) is None


def test_an_alarm_of_the_power_chip_is_a_temperature() -> None:
    hot = NANO | {"sys/class/thermal/thermal_zone4/temp": "120000"}
    assert parse_state(hot).temp_c == 120.0


def cpuinfo(*designs: tuple[str, str]) -> str:
    return "\n\n".join(
        f"processor\t: {n}\nCPU implementer\t: {maker}\nCPU part\t: {part}"
        for n, (maker, part) in enumerate(designs)
    )


def test_a_small_core_with_the_higher_clock_is_not_the_faster_one() -> None:
    a53, a73 = ("0x41", "0xd03"), ("0x41", "0xd09")
    odroid_n2 = {
        f"{CPUFREQ}/policy0/related_cpus": "0 1",
        f"{CPUFREQ}/policy0/cpuinfo_max_freq": "1896000",
        f"{CPUFREQ}/policy2/related_cpus": "2 3 4 5",
        f"{CPUFREQ}/policy2/cpuinfo_max_freq": "1800000",
        "proc/cpuinfo": cpuinfo(a53, a53, a73, a73, a73, a73),
    }
    assert cores_in(odroid_n2, tuple(range(6))) == ((2, 3, 4, 5), (0, 1))


def test_a_clock_that_no_board_has_is_refused() -> None:
    with pytest.raises(BadOutputError):
        parse_state({f"{CPUFREQ}/policy0/scaling_max_freq": "99000000000"})


@pytest.mark.parametrize(
    ("text", "now", "since"),
    [
        ("throttled=0x0", set(), set()),
        ("throttled=0x50005", {"under_voltage", "throttled"}, {"under_voltage", "throttled"}),
        ("throttled=0x80008", {"soft_temp_limit"}, {"soft_temp_limit"}),
        ("throttled=0x20000", set(), {"frequency_capped"}),
    ],
)
def test_the_bits_of_the_firmware(text: str, now: set[str], since: set[str]) -> None:
    found = parse_throttled(text)
    assert (found.now, found.since_boot) == (now, since)


@pytest.mark.parametrize("text", ["", "error=1", "throttled=0x", "throttled=50005"])
def test_other_text_has_no_bits(text: str) -> None:
    assert parse_throttled(text) is None


OPTIONS = BoardOptions(ssh="pi5", caps_mhz="2400", power_mode="15W")


def test_a_fit_board_is_ready() -> None:
    assert why_unfit(parse_state(PI5), OPTIONS) is None
    assert why_unfit(parse_state({}), OPTIONS) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"vcgencmd get_throttled": "throttled=0x1"}, "under_voltage"),
        ({"sys/class/thermal/thermal_zone0/temp": "70100"}, "70.1"),
        ({f"{CPUFREQ}/policy0/scaling_max_freq": "1800000"}, "75%"),
    ],
)
def test_a_board_that_is_not_fit_asks_for_time(text: dict[str, str], said: str) -> None:
    found = why_unfit(parse_state(PI5 | text), OPTIONS)
    assert isinstance(found, NotFitError)
    assert said in found.message


def test_bits_since_boot_alone_do_not_stop_a_repeat() -> None:
    assert (
        why_unfit(parse_state(PI5 | {"vcgencmd get_throttled": "throttled=0x50000"}), OPTIONS)
        is None
    )


def test_another_power_mode_is_for_a_person() -> None:
    found = why_unfit(parse_state(ORIN | {"nvpmodel -q": "NV Power Mode: MAXN\n2"}), OPTIONS)
    assert isinstance(found, UnusableDeviceError)
    assert "MAXN" in found.message


def reasons(before: str, after: str, *polled: str) -> tuple[str, ...] | None:
    states = [parse_state(PI5 | {"vcgencmd get_throttled": text}) for text in (before, after)]
    seen = [found for text in polled if (found := parse_throttled(text)) is not None]
    return slowed_by(states[0], seen, states[1])


def test_only_what_happened_meanwhile_slowed_a_repeat() -> None:
    assert reasons("throttled=0x0", "throttled=0x0") == ()
    assert reasons("throttled=0x40000", "throttled=0x40000") == (), "set before, so no proof"
    assert reasons("throttled=0x0", "throttled=0x40000") == ("throttled",)
    assert reasons("throttled=0x40000", "throttled=0x40000", "throttled=0x40004") == ("throttled",)
    assert slowed_by(parse_state({}), (), parse_state({})) is None


def test_a_cap_that_fell_and_an_over_current_are_reasons() -> None:
    lower = PI5 | {f"{CPUFREQ}/policy0/scaling_max_freq": "2300000"}
    assert slowed_by(parse_state(PI5), (), parse_state(lower)) == ("clock_cap",)
    more = ORIN | {"sys/class/hwmon/hwmon1/oc3_event_cnt": "1"}
    assert slowed_by(parse_state(ORIN), (), parse_state(more)) == ("over_current",)


def test_the_row_has_the_board_s_readings() -> None:
    seen = Measurement(
        task_id="t", status=Status.OK, origin=Origin.MEASURED, flags=(Flag.SPREAD, Flag.TOO_FEW),
        conditions_before=Conditions(clock_mhz=2400.0), conditions_after=Conditions(temp_c=60.0),
    )  # fmt: skip
    after = PI5 | {"vcgencmd get_throttled": "throttled=0x20000"}
    found = with_state(seen, parse_state(PI5), (), parse_state(after))
    assert found.flags == (Flag.SPREAD, Flag.THROTTLED, Flag.TOO_FEW)
    assert found.conditions_before.clock_mhz == pytest.approx(1500.019456)
    assert found.conditions_before.throttle_reasons == "none"
    assert found.conditions_after.throttle_reasons == "frequency_capped"
    assert found.conditions_after.temp_c == 60.0
    assert found.conditions_after.clock_cap_mhz == 2400.0


def test_a_canary_without_a_latency_or_with_another_one_is_refused() -> None:
    canary = CanaryTask(
        artifact_path="c.tflite", artifact_sha256="0", affinity=None, reference_ns=100,
        spread=None, runs_before=True, runs_after=False,
    )  # fmt: skip
    seen = Measurement(task_id="c", status=Status.OK, origin=Origin.MEASURED)
    with pytest.raises(BadOutputError, match="no latency"):
        canary_ns(canary, lambda _task: seen, tolerance=0.15)
    good = replace(seen, samples_ns=(95, 100, 120))
    assert canary_ns(canary, lambda _task: good, tolerance=0.15) == 100
    with pytest.raises(NotFitError, match=r"10\.00 times its registered latency"):
        canary_ns(replace(canary, reference_ns=10), lambda _task: good, tolerance=0.15)
