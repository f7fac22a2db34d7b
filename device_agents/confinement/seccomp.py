"""The kernel's filter of system calls: `refused_calls` as a program for seccomp.

libseccomp is not used: a board gets this code alone, and nothing else may be installed there. The
program is a few lines for each call, found by binary search: a call that is not in the list costs
seven comparisons, and nothing from Linux 5.11 on, which keeps a map of these.

Source: linux/seccomp.h, linux/filter.h, linux/audit.h and seccomp(2) of Linux 6.18.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.device_agents.confinement.refused_calls import (
    ALL_BITS,
    NUMBERS,
    Condition,
    Rules,
    rules_of,
)
from fleetrank.device_agents.confinement.system_call import call

_SET_MODE_FILTER = 1
_FLAG_SPEC_ALLOW = 4
"""Without it, kernels before 5.16 slow the process down: they take a filter for a sign that code
of strangers must be kept from speculating. An older kernel than 4.17 that lacks it gets no filter.
"""
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
"""Offsets in `struct seccomp_data`; the lower half of an argument comes first on both machines."""
_X32 = 0x40000000
"""First number of x86-64's second set of calls, which would be a way around the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What differs: the column of `NUMBERS`, the kernel's name, and the number of seccomp(2)."""

    column: int
    audit_arch: int
    seccomp: int


_MACHINES = {
    "x86_64": _Machine(column=0, audit_arch=0xC000003E, seccomp=317),
    "aarch64": _Machine(column=1, audit_arch=0xC00000B7, seccomp=277),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def is_available() -> bool:
    """Whether this kernel and this machine have the filter."""
    machine = _this_machine()
    if machine is None:
        return False
    try:
        call(machine.seccomp, _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, None)
    except OSError as error:
        return error.errno == errno.EFAULT  # it would have read a program
    return False


def install(*, starts_programs: bool, uses_gpu: bool) -> None:
    """Filters the calls of this thread, and of all that it starts later, permanently.

    Arguments as those of `rules_of`. Privileges must be given up before.

    Raises:
        OSError: the kernel rejects the request; then nothing is filtered.
    """
    machine = _this_machine()
    if machine is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    rules = rules_of(os.getpid(), starts_programs=starts_programs, uses_gpu=uses_gpu)
    code = _program(machine, rules)
    program = _Program(length=len(code), instructions=b"".join(code))
    call(machine.seccomp, _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, ctypes.byref(program))


def _this_machine() -> _Machine | None:
    """`None` for another machine, and for a 32-bit process on one of these."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    return _MACHINES.get(os.uname().machine)


def _program(machine: _Machine, rules: Rules) -> list[bytes]:
    numbered = ((NUMBERS[name][machine.column], name) for name in rules)
    there = sorted((number, name) for number, name in numbered if number is not None)
    leaves = [(number, _judge(name, rules[name])) for number, name in there]
    return [
        _instruction(_LOAD, _MACHINE_AT),
        _instruction(_EQUAL, machine.audit_arch, 1, 0),
        _refuse(errno.EPERM),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_AT_LEAST, _X32, 0, 1),
        _refuse(errno.EPERM),
        *_search(leaves),
    ]


def _search(leaves: Sequence[tuple[int, list[bytes]]]) -> list[bytes]:
    """Finds the number among sorted ones by halves."""
    if len(leaves) == 1:
        number, body = leaves[0]
        return [_instruction(_EQUAL, number, 0, len(body)), *body, _instruction(_RETURN, _ALLOW)]
    middle = len(leaves) // 2
    lower = _search(leaves[:middle])
    jump = _instruction(_AT_LEAST, leaves[middle][0], len(lower), 0)
    return [jump, *lower, *_search(leaves[middle:])]


def _judge(name: str, conditions: Sequence[Condition]) -> list[bytes]:
    """Refuses a call, or goes on after the last instruction."""
    if not conditions:
        # The C library then uses `clone`, whose flags are not behind a pointer.
        return [_refuse(errno.ENOSYS if name == "clone3" else errno.EPERM)]
    return [instruction for one in conditions for instruction in _check(one)]


def _check(condition: Condition) -> list[bytes]:
    code = [_instruction(_LOAD, _ARGUMENTS_AT + 8 * condition.argument)]
    if condition.mask != ALL_BITS:
        code.append(_instruction(_AND, condition.mask))
    if condition.is_refused:
        for value in condition.values:
            code += [_instruction(_EQUAL, value, 0, 1), _refuse(errno.EPERM)]
        return code
    left = len(condition.values)
    code += [
        _instruction(_EQUAL, value, left - place, 0) for place, value in enumerate(condition.values)
    ]
    return [*code, _refuse(errno.EPERM)]


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERROR | number)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
