"""The filter's program, run by a small interpreter, for both machines that have one."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.seccomp import NUMBERS, rules_of

PID = 4321
ALLOWED, DENIED, MISSING = 0x7FFF0000, 0x00050001, 0x00050026
MACHINES = list(seccomp._MACHINES)


def verdict(
    name: str | int,
    arguments: Sequence[int] = (),
    *,
    machine: str = "x86_64",
    audit_arch: int | None = None,
    starts_programs: bool = False,
    uses_gpu: bool = False,
) -> int:
    """What the kernel answers to a call."""
    found = seccomp._MACHINES[machine]
    rules = rules_of(PID, starts_programs=starts_programs, uses_gpu=uses_gpu)
    number = NUMBERS[name][found.column] if isinstance(name, str) else name
    arch = found.audit_arch if audit_arch is None else audit_arch
    padded = (*arguments, *[0] * 6)[:6]
    data = struct.pack("=IIQ6Q", number or 0, arch, 0, *padded)
    return run(seccomp._program(found, rules), data)


def run(program: Sequence[bytes], data: bytes) -> int:
    """Source: Documentation/networking/filter.rst."""
    place = value = 0
    while True:
        code, if_true, if_false, constant = struct.unpack("=HBBI", program[place])
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x05:
            place += constant
        elif code == 0x54:
            value &= constant
        elif code == 0x06:
            return int(constant)
        else:
            is_true = value == constant if code == 0x15 else value >= constant
            assert code in (0x15, 0x35)
            place += if_true if is_true else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_is_refused_only_if_it_is_in_the_list(machine: str) -> None:
    listed = {pair[seccomp._MACHINES[machine].column] for pair in NUMBERS.values()}
    for number in range(600):
        assert number in listed or verdict(number, machine=machine) == ALLOWED
    always = [name for name, rule in rules().items() if not rule and name != "clone3"]
    assert len(always) > 50
    for name in always:
        if NUMBERS[name][seccomp._MACHINES[machine].column] is not None:
            assert verdict(name, machine=machine) == DENIED, name


def rules() -> dict[str, object]:
    return dict(rules_of(PID, starts_programs=False, uses_gpu=False))


STREAM, DATAGRAM, SEQPACKET, CLOEXEC = 1, 2, 5, 0o2000000


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("socket", (1, SEQPACKET), DENIED),
        ("socketpair", (1, STREAM | CLOEXEC), ALLOWED),
        ("socketpair", (1, DATAGRAM), DENIED),
        ("socketpair", (2, STREAM), DENIED),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (PID, 7), ALLOWED),
        ("prlimit64", (1, 7), DENIED),
        # The kernel reads 32 bits of it.
        ("prlimit64", ((1 << 32) + 1, 7), DENIED),
        ("setpriority", (0, 0, 5), ALLOWED),
        ("setpriority", (0, 1, 5), DENIED),
        ("setpriority", (1, 0, 5), DENIED),
        ("ioprio_set", (1, PID, 5), ALLOWED),
        ("ioprio_set", (3, 0, 5), DENIED),
        ("sched_setaffinity", (0, 8), ALLOWED),
        ("sched_setaffinity", (1, 8), DENIED),
        ("kill", (PID, 6), ALLOWED),
        ("kill", (0, 9), DENIED),
        ("kill", ((1 << 32) - 1, 9), DENIED),
        ("tgkill", (PID, PID + 1, 6), ALLOWED),
        ("tgkill", (1, 1, 6), DENIED),
        ("clone", (0x003D0F00,), ALLOWED),
        ("clone", (0x01200011,), DENIED),
        ("clone3", (), MISSING),
        ("ioctl", (3, 0x5401), ALLOWED),
        ("ioctl", (3, 0x40086602), DENIED),
        ("execve", (), DENIED),
    ],
)
def test_some_calls_are_refused_by_their_arguments(
    name: str, arguments: tuple[int, ...], answer: int, machine: str
) -> None:
    assert verdict(name, arguments, machine=machine) == answer


def test_another_set_of_calls_is_no_way_around_the_list() -> None:
    assert verdict(39) == ALLOWED
    assert verdict(39 | 0x40000000) == DENIED
    assert verdict(39, audit_arch=0x40000003) == DENIED


def test_a_compiler_may_be_started_without_a_namespace_of_its_own() -> None:
    for name in ("fork", "vfork", "execve", "kill"):
        assert verdict(name, (1,), starts_programs=True) == ALLOWED
    assert verdict("clone", (0x01200011,), starts_programs=True) == ALLOWED
    assert verdict("clone", (0x10000011,), starts_programs=True) == DENIED
    for name in ("execveat", "memfd_create", "socket", "chmod", "unshare"):
        assert verdict(name, (1, SEQPACKET), starts_programs=True) == DENIED


def test_a_gpu_s_driver_keeps_what_it_needs_and_no_more() -> None:
    assert verdict("memfd_create", uses_gpu=True) == ALLOWED
    assert verdict("socket", (1, SEQPACKET | CLOEXEC), uses_gpu=True) == ALLOWED
    for arguments in ((1, STREAM), (2, SEQPACKET), (16, SEQPACKET)):
        assert verdict("socket", arguments, uses_gpu=True) == DENIED
    for name in ("connect", "execve", "execveat", "clone"):
        assert verdict(name, uses_gpu=True) == DENIED


HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
           Path("/usr/include/asm-generic/unistd.h"))  # fmt: skip


@pytest.mark.skipif(not all(map(Path.exists, HEADERS)), reason="needs the kernel's headers")
def test_the_numbers_are_those_of_the_kernel() -> None:
    for column, header in enumerate(HEADERS):
        text = header.read_text(encoding="ascii")
        found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", text, re.MULTILINE)
        known = {name: int(number) for name, number in found}
        newest = max(known.values())
        for name, pair in NUMBERS.items():
            number = pair[column]
            assert known.get(name) == number or (number or 0) > newest, name


@pytest.mark.parametrize(("machine", "size"), [("riscv64", 1 << 63), ("aarch64", 1 << 31)])
def test_another_machine_or_a_process_of_32_bits_has_no_filter(
    machine: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp.sys, "maxsize", size - 1)
    monkeypatch.setattr(seccomp.os, "uname", lambda: type("Names", (), {"machine": machine}))
    assert not seccomp.is_available()
