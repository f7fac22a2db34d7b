"""Runs one repeat on a board: the lock, the worker, the state before and after, the result.

The worker ends when the connection ends. If the line is cut so that neither side notices, it
measures to its end; the result is kept here until it is fetched and acknowledged.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO, NamedTuple

from fleetrank.device_agents.contract.agent import Agent, RoundAgent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import decode_request
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.device_output import parse_throttled
from fleetrank.device_agents.errors import PermanentError, TransientError
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.files import (
    NoRoomError,
    file_sha256,
    make_folder,
    replace_file,
    written_aside,
)
from fleetrank.foundation.lease import holder, is_locked, open_lease, sign, wait_for_lock
from fleetrank.foundation.vocabulary import ErrorKind

# The folder of fleetrank on a board: artifacts by their sha256, and results that were not
# fetched.
#
# The board's clock may be wrong, so nothing here depends on an age.

_CHUNK_BYTES = 1 << 20
_PIECE_BYTES = 8 << 20
"""As text it is 11 MB: the host accepts 16 MiB of output from one command."""
_SPARE_BYTES = 64 << 20
"""Left free for the system and for what runtimes write."""
_MOST_KEPT = 20
"""Results that nothing fetched; a result is about 100 kB."""
_AGAIN = "it is sent again at the next try"
RUN_AGAIN = "run the command again: what was scored is kept"
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,8})?")


class DamagedFileError(TransientError):
    """A file did not arrive as it was sent, or not to its end."""


class BoardStore:
    """The files below one folder.

    Args:
        folder: of fleetrank on this board.
        version: of the code; results that another version kept have another form.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        self._version = version
        self._files = folder / "files"
        self._kept = folder / "kept"
        for inner in (self._files, self._kept):
            make_folder(inner)

    def missing(self, names: Iterable[str]) -> list[str]:
        """The artifacts that must be sent, of these `SHA256.SUFFIX`; the others count as used."""
        found = []
        for name in names:
            path = self.path(name)
            if path.is_file():
                os.utime(path)
            else:
                found.append(name)
        return found

    def path(self, name: str) -> Path:
        """Where an artifact is or will be."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of an artifact")
        return (self._files / name).absolute()

    def receive(self, stream: BinaryIO, name: str, size: int, in_use: Collection[str]) -> None:
        """Stores the next bytes of a stream as an artifact; removes older ones if room is short.

        Raises:
            NoRoomError: there is not enough room, or it ran out.
            DamagedFileError: the stream ended early, or the bytes are not the artifact.
        """
        self._make_room(size, {name, *in_use})
        with written_aside(self.path(name), is_synced=True) as aside:
            with aside.open("xb") as file:
                found = _copy(stream, file, size)
            if found != name[:64]:
                raise DamagedFileError(f"{name} arrived damaged: its sha256 is {found}", _AGAIN)

    @property
    def outputs(self) -> Path:
        """Where a worker writes outputs; a process that holds the board adopts or removes them."""
        return (self._files / "outputs.npz").absolute()

    def adopt_outputs(self) -> "tuple[str, int]":
        """Names the outputs by their sha256, as an artifact; returns this name and the size."""
        name, size = f"{file_sha256(self.outputs)}.npz", self.outputs.stat().st_size
        self.outputs.replace(self.path(name))
        return name, size

    def take(self, name: str, offset: int) -> bytes:
        """The next bytes of an artifact, from an offset; removes it after its last byte.

        Raises:
            DamagedFileError: it was removed to make room.
        """
        path = self.path(name)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                piece = file.read(_PIECE_BYTES)
                is_last = not file.read(1)
        except FileNotFoundError as error:
            raise DamagedFileError(
                f"the board does not have {name} any more: it made room for another file", RUN_AGAIN
            ) from error
        if is_last:
            path.unlink(missing_ok=True)
        return piece

    def remove(self, name: str) -> None:
        """Removes an artifact that is not needed again."""
        self.path(name).unlink(missing_ok=True)

    def keep(self, key: str, reply: str) -> None:
        """Stores a result until it is acknowledged, also over a loss of power."""
        replace_file(self._place(key), reply.encode(), is_synced=True)
        kept = sorted(self._kept.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-_MOST_KEPT]:
            path.unlink(missing_ok=True)

    def kept(self, key: str) -> "str | None":
        """The result that was stored under this key; `None` if there is none."""
        try:
            return self._place(key).read_text(encoding="utf-8")
        except OSError:
            return None

    def forget(self, key: str) -> None:
        """Removes a result."""
        self._place(key).unlink(missing_ok=True)

    def _place(self, key: str) -> Path:
        text = f"{self._version}/{key}"
        return self._kept / f"{hashlib.sha256(text.encode()).hexdigest()}.json"

    def _make_room(self, size: int, in_use: Collection[str]) -> None:
        """Removes the artifacts that were not used for the longest time until this one fits."""
        found = sorted(self._files.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in (path for path in found if path.name not in in_use and path.name[0] != "."):
            if self._free_bytes() >= size + _SPARE_BYTES:
                return
            path.unlink(missing_ok=True)
        if self._free_bytes() < size:
            raise NoRoomError(
                f"{self._files.absolute()} has {self._free_bytes() >> 20} MiB left, and the file "
                f"needs {size >> 20} MiB",
                "free some space on the board",
            )

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._files).free


def _copy(stream: BinaryIO, file: BinaryIO, size: int) -> str:
    """Copies exactly `size` bytes; returns their sha256."""
    digest = hashlib.sha256()
    left = size
    while left:
        chunk = stream.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise DamagedFileError(f"the line ended {left} bytes before the file's end", _AGAIN)
        file.write(chunk)
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


# The connection to the host, as a command on a board sees it: its standard input.

ACKNOWLEDGED = b"ok\n"
"""The reply has arrived."""
FINISH = b"finish\n"
"""The round is to end after its current blocks."""


class Line:
    """What arrives on standard input while a command runs, and its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._gone = threading.Event()
        self._acknowledged = threading.Event()
        self._finish = threading.Event()

    def watch(self) -> None:
        """Starts to read words until the end."""
        threading.Thread(target=self._hear, daemon=True).start()

    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._gone.is_set()

    def wants_finish(self) -> bool:
        """Whether the round is to end after its current blocks."""
        return self._finish.is_set()

    def wait_acknowledged(self, limit_s: float) -> bool:
        """Waits for the acknowledgement; false if the connection ends or the time is over."""
        deadline_s = monotonic() + limit_s
        while monotonic() < deadline_s and not self._gone.is_set():
            if self._acknowledged.wait(_POLL_S):
                return True
        return self._acknowledged.is_set()

    def _hear(self) -> None:
        while words := self._stream.readline():
            (self._finish if words == FINISH else self._acknowledged).set()
        self._gone.set()


# Reads what a board says about itself, as text; `board_state` on the host parses it.
#
# Only small files and three programs of the makers; nothing is changed and nothing needs root.

Readings = dict[str, str]
"""Text by path below the root, or by the words of a command; what cannot be read is left out."""

ROOT = Path("/")
_MOST_BYTES = 65_536
_PROGRAM_LIMIT_S = 5.0
"""A firmware that does not answer must not hold a measurement."""
FACTS = (
    "proc/device-tree/model", "proc/device-tree/compatible",
    "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name",
    "etc/os-release", "proc/cpuinfo",
    "sys/devices/system/cpu/possible", "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpufreq/policy*/related_cpus",
    "sys/devices/system/cpu/cpufreq/policy*/cpuinfo_max_freq",
)  # fmt: skip
"""What stays the same between two starts of a board."""
STATE = (
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/class/thermal/thermal_zone*/type",
    "sys/class/thermal/thermal_zone*/temp",
    "sys/class/hwmon/hwmon*/oc*_event_cnt",
)
"""What a measurement depends on."""
_IDENTITY = ("proc/device-tree/serial-number", "etc/machine-id")
"""A copied memory card has the same machine id on two boards, which then differ by serial."""
BOOT = "proc/sys/kernel/random/boot_id"
THROTTLED = ("vcgencmd", "get_throttled")
_PROGRAMS = (THROTTLED, ("vcgencmd", "measure_clock", "arm"), ("nvpmodel", "-q"))


def read_facts_text(root: Path = ROOT) -> Readings:
    """Everything about the board that seldom changes, and its clock in seconds since 1970."""
    return {**_texts(FACTS, root), "clock_s": str(int(time.time()))}  # noqa: TID251 - its clock


def read_identity(root: Path = ROOT) -> str | None:
    """A hash of the board's serial number and machine id; `None` if it has neither."""
    found = _texts(_IDENTITY, root)
    text = json.dumps(found, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if found else None


def read_boot(root: Path = ROOT) -> str | None:
    """The name of the boot, new at each start; `None` if the system has none."""
    return _texts((BOOT,), root).get(BOOT)


def read_state_text(root: Path = ROOT) -> Readings:
    """The state of the board now."""
    programs = {" ".join(words): text for words in _PROGRAMS if (text := run_program(words))}
    return {**_texts(STATE, root), **programs}


def run_program(words: Sequence[str]) -> str:
    """What a program prints; empty if it is missing, fails or hangs."""
    if shutil.which(words[0]) is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            list(words), check=False, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_PROGRAM_LIMIT_S,
        )  # fmt: skip
        return _text(done.stdout) if done.returncode == 0 else ""
    return ""


def _texts(patterns: Sequence[str], root: Path) -> Readings:
    return {path: text for pattern in patterns for path, text in _matches(pattern, root)}


def _matches(pattern: str, root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.glob(pattern)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            yield str(path.relative_to(root)), _text(file.read(_MOST_BYTES))


def _text(content: bytes) -> str:
    """Device trees end their texts with a zero byte, and separate them with it."""
    return content.decode("utf-8", errors="replace").replace("\0", "\n").strip()


ACKNOWLEDGE_S = 60.0
"""A host that does not acknowledge within this time has lost the line."""
_POLL_S = 0.2
_FIRMWARE_POLL_S = 2.0
"""Between two questions to the firmware while a model is timed; each takes some milliseconds."""


class Work(NamedTuple):
    """What to measure.

    Attributes:
        agent: of this board.
        requests: a `MeasureTask` each as `contract.protocol` writes it, with paths on this board;
            several form a round.
    """

    agent: Agent
    requests: Sequence[str]


def measure(store: BoardStore, work: Work, purpose: str, wait_s: float, line: Line) -> str | None:
    """Measures one repeat of each task, and keeps the results until `acknowledged`.

    Args:
        store: of this board.
        work: the tasks, and the agent that measures them.
        purpose: shown to another host that waits for the board.
        wait_s: how long to wait while another host measures on it.
        line: to the host.

    Returns:
        The reply, or `None` if the connection ended first.
    """
    tasks = [_task(request) for request in work.requests]
    with board_lock(store.folder, purpose, wait_s, line) as other:
        if other is not None:
            return None if line.is_gone() else json.dumps({"busy": other})
        if (kept := store.kept(tasks[0].task_id)) is not None:
            return kept
        before = read_state_text()
        with _watched(before) as polled:
            found = _measure(work.agent, tasks, line)
        states = {"before": before, "polled": list(polled), "after": read_state_text()}
        reply = json.dumps({"measurements": [to_plain(one) for one in found], "state": states})
        if not any(map(_is_void, found)):
            store.keep(tasks[0].task_id, reply)
        elif line.is_gone():
            return None
        return reply


def fetch(store: BoardStore, task_id: str, wait_s: float, line: Line) -> str:
    """The kept result of a task; waits while a repeat runs, because it may be the task's."""
    deadline_s = monotonic() + wait_s
    while True:
        is_running = is_locked(_lock_path(store.folder))
        kept = store.kept(task_id)
        if kept is not None:
            return kept
        if not is_running or line.is_gone() or monotonic() >= deadline_s:
            return json.dumps({"none": True, "boot": read_boot()})
        sleep(_POLL_S)


@contextmanager
def board_lock(folder: Path, purpose: str, wait_s: float, line: Line) -> Iterator[str | None]:
    """Holds the board for the block; yields who has it if the wait was in vain."""
    deadline_s = monotonic() + wait_s
    with open_lease(_lock_path(folder)) as file:
        if wait_for_lock(file, lambda: line.is_gone() or monotonic() >= deadline_s):
            sign(file, purpose)
            yield None
        else:
            yield holder(file)


def _lock_path(folder: Path) -> Path:
    return folder / "board.lock"


def _task(request: str) -> MeasureTask:
    task = decode_request(request)
    if not isinstance(task, MeasureTask):
        raise TypeError("the request is not a measurement")
    return task


def _measure(agent: Agent, tasks: Sequence[MeasureTask], line: Line) -> Sequence[Measurement]:
    if tasks[0].blocks is not None and isinstance(agent, RoundAgent):
        return agent.measure_round(tasks, line.is_gone, line.wants_finish)
    return [agent.measure(task, line.is_gone) for task in tasks]


def _is_void(found: Measurement) -> bool:
    """Whether nothing was measured: it was stopped, or the board was not fit."""
    failure = found.failure
    is_stopped = failure is not None and failure.kind is ErrorKind.INTERRUPTED
    return is_stopped or (failure is not None and failure.wait is not None)


@contextmanager
def _watched(before: Readings) -> Iterator[list[str]]:
    """Asks a Raspberry Pi's firmware while the block runs, if only that shows a new problem.

    Its bits `since boot` show any problem of the block unless they were set before it.
    """
    seen: list[str] = []
    bits = parse_throttled(before.get(" ".join(THROTTLED), ""))
    if bits is None or not bits.since_boot:
        yield seen
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_FIRMWARE_POLL_S):
            seen.append(run_program(THROTTLED))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


# Makes a virtual environment on a board from wheels that were sent; uses no network.

INSTALL_LIMIT_S = 1500.0
"""PyTorch takes ten minutes to unpack on a memory card."""
_TAIL = 300


def make_environment(folder: Path, wheels: Path, requirements: Sequence[str]) -> None:
    """Makes or completes `FOLDER/venv`.

    Pip itself is among the wheels: the Python of Debian and its relatives has none for a new
    environment.

    Args:
        folder: of fleetrank on this board.
        wheels: a zip file of wheels.
        requirements: as for pip.

    Raises:
        PermanentError: with the last lines of the program that failed.
    """
    unpacked = folder / "wheels"
    shutil.rmtree(unpacked, ignore_errors=True)
    with zipfile.ZipFile(wheels) as archive:
        archive.extractall(unpacked)
    python = folder / "venv" / "bin" / "python"
    try:
        if not python.exists():
            _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
        pip = next(unpacked.glob("pip-*.whl")) / "pip"
        options = ["--no-index", "--disable-pip-version-check", "--no-input", "--quiet"]
        find = ["--find-links", str(unpacked)]
        _run([str(python), str(pip), "install", *options, *find, *requirements])
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
        wheels.unlink()


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            list(command), check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=INSTALL_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PermanentError(
            f"{command[0]} takes more than {INSTALL_LIMIT_S:g} s", "install the runtimes by hand"
        ) from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-_TAIL:]
        raise PermanentError(
            f"{' '.join(command[1:4])} failed on the board: {said}",
            "install NumPy and the runtimes there by hand, then register with `python=PATH`",
        )
