"""Places the program and the artifact of a task on a phone, runs the program and cleans up."""

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from fleetrank.device_agents.android.adb_server import client_environment
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.execution.storage import PUSH_BYTES_PER_S, PhoneStorage
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.programs.phone_program import create_program
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.proof import figure_ns
from fleetrank.device_agents.contract.task import (
    CanaryTask,
    MeasurePolicy,
    MeasureTask,
    canary_task,
)
from fleetrank.device_agents.device_output import MAX_PROGRAM_BYTES
from fleetrank.device_agents.errors import (
    BadOutputError,
    PermanentError,
    TimedOutError,
    TooSlowError,
    UnsupportedError,
)
from fleetrank.device_agents.linux.bare_client import require_end, run_plain
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.temporary import temporary_folder

RUN_FOLDER = f"{FOLDER}/run"
TASK_FOLDER = f"{RUN_FOLDER}/0"
"""Only one program runs at a time, because its caller holds the phone's lease."""
MAX_RESULT_BYTES = 16 * 1024 * 1024
"""A structured result has a few hundred bytes, a list of ten thousand samples 0.5 MB."""
PID_FILE = f"{TASK_FOLDER}/pid"
LOG_MARK = "fleetrank"
"""Tag of the line that separates a program's log from older lines."""
_DSP_FOLDERS = "/system/lib/rfsa/adsp;/system/vendor/lib/rfsa/adsp;/vendor/lib/rfsa/adsp;/dsp"
_ASK_TIMEOUT_S = 30.0
_START = 'mkdir -p "$1" && cd "$1" && echo $$ > pid || exit 126; shift; exec "$@"'
"""The shell process becomes the program, so the number it wrote is the program's number."""
_CLEAN = """
[ -d "$1" ] || exit 0
for run in "$1"/*; do
  if [ -f "$run/pid" ] && read -r pid < "$run/pid"; then
    case $pid in
      '' | *[!0-9]*) ;;
      *) [ "/proc/$pid/cwd" -ef "$run" ] && kill -9 "$pid" 2>/dev/null ;;
    esac
  fi
done
rm -rf -- "$1"
"""
"""A closed connection does not end the program on the phone.

The process number may belong to another program by now, mostly after a restart. Only a program
that works in the folder is ours.
"""


def run_program(
    phone: Phone,
    run: ProgramCall,
    *,
    affinity: Sequence[int] | None,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
    watch: AbstractContextManager[object] | None = None,
) -> ProgramOutput:
    """Runs a program to its end and collects its output; the caller holds the phone's lease.

    Its files stay until `clean_runs`, because a lost phone has to return first.

    Args:
        phone: the phone that runs it.
        run: the call.
        affinity: CPUs to pin it to; `None` lets the system choose.
        timeout_s: for the program itself.
        stop_requested: asked while the program runs.
        watch: looks at the phone while the program itself runs.

    Raises:
        TransientError: the phone was lost, or the program did not end in time.
        PermanentError: the phone cannot start programs in this folder.
    """
    clean_runs(phone)
    mark = secrets.token_hex(8)
    _place_inputs(phone, run)
    if run.log_tag is not None:
        phone.shell('log -t "$1" "$2"', LOG_MARK, mark, timeout_s=_ASK_TIMEOUT_S)
    with watch or nullcontext():
        ended = phone.shell(
            _START, TASK_FOLDER, *_words_of(run, affinity),
            timeout_s=timeout_s, stop_requested=stop_requested, max_bytes=MAX_PROGRAM_BYTES,
        )  # fmt: skip
    if ended.exit_code == 126:
        raise PermanentError(
            f"phone {phone.serial!r} cannot run {run.argv[0]}: {ended.stderr.strip()[:200]}",
            "check that /data/local/tmp is writable and that programs in it may run",
        )
    return ProgramOutput(
        run=run,
        exit_code=ended.exit_code,
        stdout=ended.stdout,
        stderr=ended.stderr,
        result=None if run.result_file is None else _pull(phone, run.result_file),
        logcat=None if run.log_tag is None else _read_logcat(phone, run.log_tag, mark),
        outputs=None if run.outputs_file is None else _pull(phone, run.outputs_file),
    )


def _words_of(run: ProgramCall, affinity: Sequence[int] | None) -> tuple[str, ...]:
    """The command of a call, pinned to CPUs."""
    pinned = () if affinity is None else ("taskset", mask_of(affinity))
    # After `taskset`: a library of the user's must not take the place of one of Android's.
    beside = () if run.library_folder is None else ("env", *library_paths(run.library_folder))
    return (*pinned, *beside, *run.argv)


def clean_runs(phone: Phone) -> None:
    """Stops programs that earlier runs left running, and deletes the files of these runs."""
    phone.shell(_CLEAN, RUN_FOLDER, timeout_s=_ASK_TIMEOUT_S)


def mask_of(affinity: Sequence[int]) -> str:
    """Formats CPU numbers for Android's `taskset`: a hexadecimal mask without prefix."""
    return f"{sum(1 << cpu for cpu in set(affinity)):x}"


def library_paths(folder: str) -> tuple[str, str]:
    """The variables by which Android's linker and a Hexagon processor find libraries in a folder.

    The first is for libraries that the program itself loads, the second for those that a Hexagon
    processor loads; setting it replaces the phone's own places, so they follow.

    Source: hexagon_delegate.cc of LiteRT.
    """
    return f"LD_LIBRARY_PATH={folder}", f"ADSP_LIBRARY_PATH={folder};{_DSP_FOLDERS}"


def _place_inputs(phone: Phone, run: ProgramCall) -> None:
    """Sends the file of inputs, if the call names one; `clean_runs` deletes it."""
    if (remote := run.inputs_file) is None:
        return
    phone.shell('mkdir -p "$1"', remote.rpartition("/")[0], timeout_s=_ASK_TIMEOUT_S)
    with temporary_folder("inputs") as folder:
        local = folder / "inputs"
        local.write_bytes(run.inputs)
        phone.push(local, remote, _ASK_TIMEOUT_S + len(run.inputs) / PUSH_BYTES_PER_S)


def _pull(phone: Phone, remote: str) -> bytes | None:
    """Reads a file that the program wrote; a binary that does not know the flag writes none."""
    with temporary_folder("result") as folder:
        local = folder / "result"
        try:
            phone.pull(remote, local, max_bytes=MAX_RESULT_BYTES, timeout_s=_ASK_TIMEOUT_S)
        except BadOutputError:
            return None
        return local.read_bytes()


def _read_logcat(phone: Phone, tag: str, mark: str) -> str:
    """The lines since the mark: phones may refuse `logcat -c`, and other programs need their log.

    All lines if the phone did not log the mark.
    """
    text = phone.shell(
        'logcat -d -s "$1" "$2"', f"{tag}:V", f"{LOG_MARK}:V",
        timeout_s=_ASK_TIMEOUT_S, max_bytes=MAX_PROGRAM_BYTES,
    ).stdout  # fmt: skip
    _, found, after = text.rpartition(mark)
    return after if found else text


CANARY_POLICY = MeasurePolicy(
    min_warmup_runs=5, min_warmup_s=0.2, max_warmup_s=1.0, min_runs=20, max_time_s=1.0
)
"""One second: enough for a median within a few per cent, and the ratio's limit is 10 %."""
CANARY_TIMEOUT_S = 60.0
ANSWER_S = 1.0
"""If a phone answers this fast, the phone is not the reason why its program did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhonePrograms:
    """The programs of one phone and how to run them there; the caller holds the phone's lease.

    Attributes:
        registered: SHA-256 of each program the phone was registered with, by name.
        stop_requested: asked while a program runs.
        require_phone: called before each program; raises if the phone is another host's by now.
    """

    phone: Phone
    store: ProgramStore
    registered: Mapping[str, str]
    stop_requested: StopRequested
    require_phone: Callable[[], None] = lambda: None

    def place(self, task: MeasureTask) -> ProgramCall:
        """Places program and artifact on the phone, and plans the call."""
        if task.weights_path is not None:
            raise UnsupportedError(
                "the weights of this file are in a second file, which no program for phones reads",
                "measure this model as TFLite or in a narrower precision",
            )
        program = create_program(task.execution.runtime)
        found = self.store.find(program.name, self.registered[program.name])
        cache = PhoneStorage(self.phone)
        call = program.plan_run(
            program_path=cache.path_of_program(found),
            artifact_path=cache.path_of_artifact(task.artifact_sha256, program.artifact_suffix),
            run_folder=TASK_FOLDER,
            task=task,
        )
        if call.library not in (None, *(part.name for part in found.parts)):
            raise UnsupportedError(
                f"{program.name} was registered without {call.library}",
                f"put both into one folder and register again: `tool={program.name}=PATH`",
            )
        program_path = cache.place_program(found)
        cache.place_artifact(
            Path(task.artifact_path), task.artifact_sha256, program.artifact_suffix
        )
        folder = program_path.rpartition("/")[0] if found.folder else None
        return replace(call, library_folder=folder, inputs=program.input_bytes(task))

    def version_of(self, task: MeasureTask) -> dict[str, str]:
        """The program of a task, as stored in a row."""
        name = create_program(task.execution.runtime).name
        return {f"{name}_sha256": self.registered[name]}

    def run(
        self,
        task: MeasureTask,
        placed: ProgramCall,
        watch: AbstractContextManager[object] | None = None,
    ) -> ProgramOutput:
        """Runs a task's program to its end.

        Raises:
            TooSlowError: it did not end in time, although the phone answers.
            FleetError: the same errors as `run_program`.
        """
        self.require_phone()
        try:
            return run_program(
                self.phone,
                placed,
                affinity=task.execution.affinity,
                timeout_s=task.limits.timeout_s,
                stop_requested=self.stop_requested,
                watch=watch,
            )
        except TimedOutError as error:
            if not self._answers():
                raise
            raise TooSlowError(
                f"{placed.argv[0]} did not end within {task.limits.timeout_s:g} s",
                "raise timeout_s of the sweep, or remove the model from the sweep",
            ) from error

    def _answers(self) -> bool:
        try:
            self.phone.shell("true", timeout_s=ANSWER_S)
        except FleetError:
            return False
        return True

    def run_canary(self, canary: CanaryTask) -> int:
        """Runs the canary; returns its latency in ns."""
        path, sha256 = canary.artifact_path, canary.artifact_sha256
        task = canary_task(path, sha256, canary.affinity, CANARY_POLICY, CANARY_TIMEOUT_S)
        return latency_of(read(task, self.run(task, self.place(task))))


def read(task: MeasureTask, output: ProgramOutput) -> Measurement:
    """Parses an output; raises the same errors as `PhoneProgram.read`."""
    return create_program(task.execution.runtime).read(output)


def latency_of(reading: Measurement) -> int:
    """The latency of one process: the median of its samples, or the program's own figure.

    Raises:
        BadOutputError: the output contains no latency.
    """
    if reading.latency_ns is None:
        raise BadOutputError("the program printed no latency", "read its stored output")
    return reading.latency_ns


def run_bare(programs: PhonePrograms, task: MeasureTask) -> tuple[int, ...]:
    """Runs a task as a person does: by `adb shell`, with plain flags, and reads the text.

    Fleetrank's own way uses other settings of the phone, looks at it meanwhile and reads a result
    file. The caller holds the phone's lease. Returns the samples in nanoseconds, or else the
    program's own figure.

    Raises:
        FleetError: the errors of `PhonePrograms.place`, `require_end` and `read`.
    """
    placed, phone = programs.place(task), programs.phone
    plain = tuple(word for word in placed.argv if word.partition("=")[2] != placed.result_file)
    run = replace(placed, argv=plain, result_file=None)
    _place_inputs(phone, run)
    where = ("-H", phone.server.host, "-P", str(phone.server.port), "-s", phone.serial)
    command = shlex.join(_words_of(run, task.execution.affinity))
    adb = (str(phone.server.adb), *where, "shell", command)
    end = run_plain(adb, task, client_environment())
    clean_runs(phone)
    require_end(end)
    output = ProgramOutput(run=run, exit_code=end.exit_code, stdout=end.stdout, stderr=end.stderr)
    reading = read(task, output)
    return reading.samples_ns or (figure_ns(reading) or latency_of(reading),)
