from pathlib import Path

import pytest

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.linux.conditions import (
    CpuTime,
    parse_oom_kills,
    parse_stat,
    read_conditions,
    shares,
)

# Linux 6.18, 2026-11-21; the cpufreq and hwmon parts follow the kernel's documentation.
FILES = {
    "proc/loadavg": "0.50 0.70 1.10 2/345 6789\n",
    "proc/stat": "cpu  100 10 50 800 20 5 5 10 7 3\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
    "proc/meminfo": "MemTotal:  100 kB\nMemAvailable:   64 kB\n",
    "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2596.124\n\ncpu MHz\t\t: 1000.0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "4000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq": "3500000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "99000\n",
    "sys/class/hwmon/hwmon1/name": "coretemp\n",
    "sys/class/hwmon/hwmon1/temp1_input": "51000\n",
    "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
    "sys/class/thermal/thermal_zone0/temp": "52500\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_everything_the_host_tells_is_read(root: Path) -> None:
    assert read_conditions((1,), (0.25, 0.0), root) == Conditions(
        load_1min=0.5,
        busy_share=0.25,
        steal_share=0.0,
        clock_mhz=2000.0,
        clock_max_mhz=4000.0,
        governor="performance,powersave",
        temp_c=52.5,
        available_memory_bytes=64 * 1024,
    )


def test_the_clock_is_the_mean_of_all_cores_when_none_is_chosen(root: Path) -> None:
    assert read_conditions(None, None, root).clock_mhz == 2500.0


def test_without_cpufreq_the_clock_comes_from_cpuinfo(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(FILES["proc/cpuinfo"])
    assert read_conditions((0,), None, tmp_path).clock_mhz == 2596.124


def test_an_empty_system_tells_nothing(tmp_path: Path) -> None:
    assert read_conditions(None, None, tmp_path) == Conditions()


def test_guest_time_is_counted_once() -> None:
    assert parse_stat(FILES["proc/stat"]) == CpuTime(busy=170, steal=10, total=1000)


def test_shares_leave_out_the_own_process_and_stay_between_0_and_1() -> None:
    before = CpuTime(busy=100, steal=0, total=1000)
    after = CpuTime(busy=200, steal=20, total=1200)
    assert shares(before, after, own_ticks=50) == (0.25, 0.1)
    assert shares(before, after, own_ticks=500) == (0.0, 0.1)
    assert shares(before, before, own_ticks=0) is None
    assert shares(None, after, own_ticks=0) is None


def test_oom_kills_are_found_by_their_whole_name() -> None:
    assert parse_oom_kills("oom_kill_x 5\noom_kill 2\n") == 2
    assert parse_oom_kills("nr_free_pages 2\n") is None


@pytest.mark.parametrize(
    ("kind", "text", "temp_c"),
    [
        ("bigcore0-thermal", "48000", 48.0),
        ("CPU-therm", "34500", 34.5),
        ("soc_thermal", "65", 65.0),
        ("cpu_thermal", "-2000", -2.0),
        ("soc-thermal", "999000", None),
        ("iwlwifi_1", "61000", None),
        ("acpitz", "27800", None),
    ],
)
def test_the_zone_of_a_chip_is_known_by_its_name_and_read_in_its_unit(
    tmp_path: Path, kind: str, text: str, temp_c: float | None
) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text(f"{kind}\n")
    (zone / "temp").write_text(f"{text}\n")
    assert read_conditions(None, None, tmp_path).temp_c == temp_c
