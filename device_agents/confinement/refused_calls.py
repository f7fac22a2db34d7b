"""The system calls that a confined worker may not make: the list that `seccomp` enforces.

docs/security.md has it for users. Everything else is allowed: runtimes, drivers and C libraries
differ too much for a list of what they need.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    "userfaultfd": (323, 282),
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
