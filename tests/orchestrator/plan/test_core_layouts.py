"""Which cores a sweep uses, on ten machines whose cores are of one to three kinds."""

import os
from pathlib import Path

import pytest

from fleetrank.device_agents.linux.cores import clusters_by_kind, cpus_one_per_core
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.foundation.cpus import parse_cpu_list
from fleetrank.orchestrator.plan.pinning import DeviceCores, cluster_of

A55, A510, A520 = ("0x41", "0xd05"), ("0x41", "0xd46"), ("0x41", "0xd80")
A76, A78, X1, A720, X4 = (("0x41", part) for part in ("0xd0b", "0xd41", "0xd44", "0xd81", "0xd82"))
A53, GOLD, SILVER = ("0x41", "0xd03"), ("0x51", "0x804"), ("0x51", "0x805")
FIRE, ICE = ("0x61", "0x23"), ("0x61", "0x22")
X86 = None

LAYOUTS = {
    "Galaxy S21": ((4, A55, 1800), (3, A78, 2420), (1, X1, 2840)),
    "Pixel 8": ((4, A510, 1704), (4, A78, 2367), (1, X1, 2914)),
    "Snapdragon 765G": ((6, SILVER, 1804), (1, GOLD, 2208), (1, GOLD, 2400)),
    "Snapdragon 675": ((6, SILVER, 1708), (2, GOLD, 2016)),
    "Dimensity 9300": ((4, A720, 2000), (3, X4, 2850), (1, X4, 3250)),
    "Helio P35": ((4, A53, 1800), (4, A53, 2300)),
    "Orange Pi 5 (RK3588)": ((4, A55, 1800), (4, A76, 2400)),
    "Apple M1": ((4, ICE, 2064), (4, FIRE, 3204)),
    "Core i9-13900KF": ((2, X86, 5800), (6, X86, 5500), (16, X86, 4300)),
    "Core Ultra 7 155H": ((6, X86, 4800), (8, X86, 3800), (2, X86, 2500)),
}
"""Cores in the order of their numbers: how many, design, highest clock in MHz."""
BIG = {
    "Galaxy S21": {1: "7", 2: "4-6", 4: "4-7", 8: None},
    "Pixel 8": {1: "8", 2: "4-7", 4: "4-7", 8: None},
    "Snapdragon 765G": {1: "7", 2: "6-7", 4: None, 8: None},
    "Snapdragon 675": {1: "6-7", 2: "6-7", 4: None, 8: None},
    "Dimensity 9300": {1: "7", 2: "4-6", 4: "0-3", 8: "0-7"},
    "Helio P35": {1: "4-7", 2: "4-7", 4: "4-7", 8: "0-7"},
    "Orange Pi 5 (RK3588)": {1: "4-7", 2: "4-7", 4: "4-7", 8: None},
    "Apple M1": {1: "4-7", 2: "4-7", 4: "4-7", 8: None},
    "Core i9-13900KF": {1: "0-1", 2: "0-1", 4: "2-7", 8: "0-7"},
    "Core Ultra 7 155H": {1: "0-5", 2: "0-5", 4: "0-5", 8: None},
}
"""CPUs by threads; `None` leaves them to the system, since the fast cores are too few."""


def cores_of(layout: str) -> tuple[dict[int, float], dict[int, tuple[str, str]]]:
    clocks: dict[int, float] = {}
    designs: dict[int, tuple[str, str]] = {}
    for count, design, mhz in LAYOUTS[layout]:
        for cpu in range(len(clocks), len(clocks) + count):
            clocks[cpu] = float(mhz)
            if design is not None:
                designs[cpu] = design
    return clocks, designs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_phones_and_boards_start_with_the_fastest_cores(layout: str) -> None:
    clocks, designs = cores_of(layout)
    found = clusters_by_kind(clocks, clocks, designs)
    cores = DeviceCores(
        clusters=tuple(one.cores for one in found),
        small=tuple(cpu for one in found if one.is_small for cpu in one.cores),
    )
    chosen = {threads: cluster_of("auto", threads, cores) for threads in (1, 2, 4, 8)}
    found_sets = {n: None if cpus is None else tuple(sorted(cpus)) for n, cpus in chosen.items()}
    assert found_sets == {n: text and parse_cpu_list(text) for n, text in BIG[layout].items()}


def write_core(root: Path, cpu: int, mhz: float, mates: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}"
    for name, text in (
        ("cpufreq/cpuinfo_max_freq", f"{mhz * 1000:.0f}\n"),
        ("topology/thread_siblings_list", mates),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_host_starts_with_the_fastest_cores(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks, designs = cores_of(layout)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(clocks))
    text = ""
    for cpu, mhz in clocks.items():
        write_core(tmp_path, cpu, mhz, f"{cpu}\n")
        maker, part = designs.get(cpu, ("", ""))
        text += f"processor\t: {cpu}\n" + (
            f"CPU implementer\t: {maker}\nCPU part\t: {part}\n\n" if maker else "\n"
        )
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    order = cpus_one_per_core(tmp_path)
    assert sorted(order) == sorted(clocks)
    assert [clocks[cpu] for cpu in order] == sorted(clocks.values(), reverse=True)


def test_threads_of_two_cores_come_after_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fast cores with two threads each, and two slow ones."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    for cpu, (mhz, mates) in enumerate(
        [(2000, "0"), (2000, "1")] + [(5000, "2-3")] * 2 + [(5000, "4-5")] * 2
    ):
        write_core(tmp_path, cpu, mhz, mates)
    assert cpus_one_per_core(tmp_path) == (2, 4, 0, 1, 3, 5)


def test_cores_of_one_socket_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many servers count the cores of two sockets in turn."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(4)))
    for cpu in range(4):
        write_core(tmp_path, cpu, 3000, f"{cpu}\n")
        socket = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
        socket.write_text(f"{cpu % 2}\n")
    assert cpus_one_per_core(tmp_path) == (0, 2, 1, 3)
    assert dict(read_facts(tmp_path).extra)["cores_by_kind"] == "0,2 + 1,3"
