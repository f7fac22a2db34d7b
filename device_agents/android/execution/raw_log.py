"""The stored output of one program call on a phone, for a reader who doubts a row.

The log is text in sections. Each heading contains the section's length, so that no output can be
mistaken for a heading. The program's result file is a section of base64.
"""

import base64
import shlex

from fleetrank.device_agents.android.programs.program_output import ProgramOutput

_FIRST_LINE = "fleetrank raw log 1\n"
_LAST_LINE = "== end\n"


def encode_log(output: ProgramOutput) -> str:
    """Encodes an output as a log."""
    run = output.run
    sections = {
        "argv": shlex.join(run.argv),
        **{name: getattr(run, name) for name in ("result_file", "log_tag", "warmup_runs")},
        **{name: getattr(output, name) for name in ("exit_code", "stdout", "stderr", "logcat")},
        "result": None if output.result is None else base64.b64encode(output.result).decode(),
    }
    texts = {name: str(value) for name, value in sections.items() if value is not None}
    parts = [f"== {name}, {len(text)} characters\n{text}\n" for name, text in texts.items()]
    return _FIRST_LINE + "".join(parts) + _LAST_LINE
