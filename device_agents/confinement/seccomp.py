"""System calls: those that a confined worker may not make, and the kernel's filter of them.

docs/security.md has the list for users. Everything else is allowed: runtimes, drivers and C
libraries differ too much for a list of what they need.

libseccomp is not used: a board gets this code alone, and nothing else may be installed there. The
program is a few lines for each call, found by binary search: a call that is not in the list costs
eight comparisons, and nothing from Linux 5.11 on, which keeps a map of these.

Source: linux/seccomp.h, linux/filter.h, linux/audit.h and seccomp(2) of Linux 6.18.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38  # Source: linux/prctl.h
_CAPABILITIES_V3 = 0x20080522  # Source: linux/capability.h
_KEPT = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH. Source: linux/capability.h"""


def call(number: int, *arguments: object) -> int:
    """Makes a system call by number; integers are passed as the longs that the kernel reads.

    Raises:
        OSError: the kernel's error.
    """
    library = ctypes.CDLL(None, use_errno=True)
    longs = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    result = int(library.syscall(ctypes.c_long(number), *longs))
    if result < 0:
        raise _last_error()
    return result


def give_up_privileges() -> None:
    """This thread, and what it starts, gets no new privileges, and loses those of root.

    Without the first, an unprivileged process may not confine itself. Root may still pass over the
    modes of files: those of a task can lie in the folder of another user.

    Raises:
        OSError: the kernel's error.
    """
    library = ctypes.CDLL(None, use_errno=True)
    header, held = struct.pack("=Ii", _CAPABILITIES_V3, 0), ctypes.create_string_buffer(24)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or library.capget(header, held):
        raise _last_error()
    kept = [bits & _KEPT for bits in struct.unpack("=6I", held.raw)[:2]]
    if library.capset(header, struct.pack("=6I", *kept, 0, 0, 0, 0)):
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


NUMBERS: Mapping[str, "tuple[int | None, int | None]"] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "ioctl": (16, 29),
    "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281), "memfd_create": (319, 279),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "chroot": (161, 51), "pivot_root": (155, 41), "mount": (165, 40),
    "umount2": (166, 39), "open_tree": (428, 428), "open_tree_attr": (467, 467),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "mknod": (133, None), "mknodat": (259, 33),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225),
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "setgroups": (116, 159), "capset": (126, 91),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "syslog": (103, 116), "sethostname": (170, 161),
    "setdomainname": (171, 162), "reboot": (169, 142), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
}  # fmt: skip
"""Of x86-64 and of 64-bit Arm; `None` where there is none. Source: unistd.h of Linux 6.18."""

ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Compares one argument of a call; the lower 32 bits are all that the kernel reads of these.

    Attributes:
        argument: its place, from 0.
        mask: the bits that are compared.
        values: what is compared with.
        is_refused: whether the values are refused; else only these are allowed.
    """

    argument: int
    mask: int = ALL_BITS
    values: tuple[int, ...]
    is_refused: bool = False


Rules = Mapping[str, "tuple[Condition, ...]"]
"""Calls that are allowed if all conditions hold; a call without conditions is never allowed."""

_LOCAL = Condition(argument=0, values=(1,))
"""AF_UNIX. Source: linux/socket.h, as for the next two."""
_STREAM, _SEQPACKET = 1, 5
_TYPE_MASK = 0xF
"""Datagrams are not allowed: each can have another address."""
_THREAD = Condition(argument=0, mask=0x00010000, values=(0x00010000,))
"""CLONE_THREAD. Source: linux/sched.h, as for the next."""
_NO_NAMESPACE = Condition(argument=0, mask=0x7E020000, values=(0,))
_CHANGES_ATTRIBUTES = (0x40086602, 0x401C5820)
"""FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR, which is what `chattr` calls. Source: linux/fs.h."""
_OWN_SCHEDULE = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam",
                 "sched_setattr", "move_pages", "migrate_pages")  # fmt: skip
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")


def rules_of(pid: int, *, starts_programs: bool, uses_gpu: bool) -> Rules:
    """The rules for a process.

    Args:
        pid: its id.
        starts_programs: `torch.compile` runs a C++ compiler.
        uses_gpu: NVIDIA's driver makes an anonymous file, and a socket for other processes that
            share its memory; without them CUDA ends with error 304.
    """
    itself = Condition(argument=0, values=(0, pid))
    rules: dict[str, tuple[Condition, ...]] = dict.fromkeys(NUMBERS, ())
    rules |= dict.fromkeys(_OWN_SCHEDULE, (itself,))
    rules["socketpair"] = (_LOCAL, _of_type(_STREAM, _SEQPACKET))
    rules["ioctl"] = (Condition(argument=1, values=_CHANGES_ATTRIBUTES, is_refused=True),)
    who = Condition(argument=1, values=(0, pid))
    rules["setpriority"] = (Condition(argument=0, values=(0,)), who)  # PRIO_PROCESS
    rules["ioprio_set"] = (Condition(argument=0, values=(1,)), who)  # IOPRIO_WHO_PROCESS
    rules |= dict.fromkeys(_SIGNALS, (Condition(argument=0, values=(pid,)),))
    rules["clone"] = (_THREAD,)
    if starts_programs:
        rules["clone"] = (_NO_NAMESPACE,)
        _allow(rules, ("fork", "vfork", "execve", "pidfd_send_signal", *_SIGNALS))
    if uses_gpu:
        rules["socket"] = (_LOCAL, _of_type(_SEQPACKET))
        _allow(rules, ("memfd_create",))
    return rules


def _of_type(*types: int) -> Condition:
    return Condition(argument=1, mask=_TYPE_MASK, values=types)


def _allow(rules: dict[str, tuple[Condition, ...]], names: Iterable[str]) -> None:
    for name in names:
        del rules[name]


_SET_MODE_FILTER = 1
_FLAG_SPEC_ALLOW = 4
"""Without it, kernels before 5.16 slow the process down: they take a filter for a sign that code
of strangers must be kept from speculating. An older kernel than 4.17 that lacks it gets no filter.
"""
_LOAD, _EQUAL, _AT_LEAST, _ALWAYS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x05, 0x54, 0x06
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
    # A conditional jump passes over 255 instructions at most.
    jump = [_instruction(_AT_LEAST, leaves[middle][0], 0, 1), _instruction(_ALWAYS, len(lower))]
    return [*jump, *lower, *_search(leaves[middle:])]


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
