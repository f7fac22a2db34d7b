"""Runs one program on a phone in a separate folder, and cleans up after earlier runs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.runners.phone_runner import ToolOutput, ToolRun
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output.device_text import MAX_TOOL_BYTES
from fleetrank.device_agents.errors import BadOutputError, PermanentError

RUN_FOLDER = f"{FOLDER}/run"
TASK_FOLDER = f"{RUN_FOLDER}/0"
"""Only one program runs at a time, because its caller holds the phone's lease."""
MAX_RESULT_BYTES = 16 * 1024 * 1024
"""A structured result has a few hundred bytes, a list of ten thousand samples 0.5 MB."""
_ASK_TIMEOUT_S = 30.0
_START = 'mkdir -p "$1" && cd "$1" && echo $$ > pid || exit 126; shift; exec "$@"'
"""The shell process becomes the program, so the number it wrote is the program's number."""
_CLEAN = """
[ -d "$1" ] || exit 0
for run in "$1"/*; do
  if [ -f "$run/pid" ] && read -r pid < "$run/pid"; then
    case $pid in
      '' | *[!0-9]*) ;;
      *) [ "//proc/$pid/cwd" -ef "$run" ] && kill -9 "$pid" 2>/dev/null ;;
    esac
  fi
done
rm -rf -- "$1"
"""
"""A closed connection does not end the program on the phone.

The process number may belong to another program by now, mostly after a restart. Only a program
that works in the folder is ours. Two slashes: /proc of a virtual phone does not list its programs,
but /proc of the host does, and the rewriting of paths skips `//`.
"""


def run_tool(
    phone: Phone,
    run: ToolRun,
    *,
    affinity: Sequence[int] | None,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
) -> ToolOutput:
    """Runs a program to its end and collects its output; the caller holds the phone's lease.

    Its files stay until `clean_runs`, because a lost phone has to return first.

    Args:
        phone: the phone that runs it.
        run: the call.
        affinity: CPUs to pin it to; `None` lets the system choose.
        timeout_s: for the program itself.
        stop_requested: asked while the program runs.

    Raises:
        TransientError: the phone was lost, or the program did not end in time.
        PermanentError: the phone cannot start programs in this folder.
    """
    clean_runs(phone)
    if run.log_tag is not None:
        phone.shell("logcat -c", timeout_s=_ASK_TIMEOUT_S)
    pinned = () if affinity is None else ("taskset", mask_of(affinity))
    ended = phone.shell(
        _START, TASK_FOLDER, *pinned, *run.argv,
        timeout_s=timeout_s, stop_requested=stop_requested, max_bytes=MAX_TOOL_BYTES,
    )  # fmt: skip
    if ended.exit_code == 126:
        raise PermanentError(
            f"phone {phone.serial!r} cannot run {run.argv[0]}: {ended.stderr.strip()[:200]}",
            "check that /data/local/tmp is writable and that programs in it may run",
        )
    return ToolOutput(
        run=run,
        exit_code=ended.exit_code,
        stdout=ended.stdout,
        stderr=ended.stderr,
        result=None if run.result_file is None else _pull(phone, run.result_file),
        logcat=None if run.log_tag is None else _read_logcat(phone, run.log_tag),
    )


def clean_runs(phone: Phone) -> None:
    """Stops programs that earlier runs left running, and deletes the files of these runs."""
    phone.shell(_CLEAN, RUN_FOLDER, timeout_s=_ASK_TIMEOUT_S)


def mask_of(affinity: Sequence[int]) -> str:
    """Formats CPU numbers for Android's `taskset`: a hexadecimal mask without prefix."""
    return f"{sum(1 << cpu for cpu in set(affinity)):x}"


def _pull(phone: Phone, remote: str) -> bytes | None:
    """Reads the result file; a binary that does not know the flag writes none."""
    with tempfile.TemporaryDirectory(prefix="fleetrank-") as folder:
        local = Path(folder) / "result"
        try:
            phone.pull(remote, local, max_bytes=MAX_RESULT_BYTES, timeout_s=_ASK_TIMEOUT_S)
        except BadOutputError:
            return None
        return local.read_bytes()


def _read_logcat(phone: Phone, tag: str) -> str:
    return phone.shell(
        'logcat -d -s "$1"', f"{tag}:V", timeout_s=_ASK_TIMEOUT_S, max_bytes=MAX_TOOL_BYTES
    ).stdout
