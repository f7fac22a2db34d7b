"""The stored output of one program call on a phone. Later parsers can read it again.

The log is text in sections. Each heading contains the section's length, so that no output can be
mistaken for a heading. The program's result file is a section of base64.
"""

import base64
import dataclasses
import re
import shlex

from fleetrank.device_agents.android.programs.phone_program import (
    ProgramCall,
    ProgramOutput,
    ProgramReading,
    create_program,
)
from fleetrank.device_agents.contract.kind import LogReader
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.vocabulary import Origin, Runtime, Status

_MARK = "fleetrank raw log "
_FIRST_LINE = f"{_MARK}1\n"
_LAST_LINE = "== end\n"
_HEADING = re.compile(r"== ([a-z_]{1,20}), ([0-9]{1,12}) characters\n", re.ASCII)


def encode_log(output: ProgramOutput) -> str:
    """Encodes an output as a log."""
    run = output.run
    sections = {
        "argv": shlex.join(run.argv),
        "result_file": run.result_file,
        "log_tag": run.log_tag,
        "warmup_runs": str(run.warmup_runs),
        "exit_code": str(output.exit_code),
        "stdout": output.stdout,
        "stderr": output.stderr,
        "logcat": output.logcat,
        "result": None if output.result is None else base64.b64encode(output.result).decode(),
    }
    parts = [
        f"== {name}, {len(text)} characters\n{text}\n"
        for name, text in sections.items()
        if text is not None
    ]
    return _FIRST_LINE + "".join(parts) + _LAST_LINE


def decode_log(text: str) -> ProgramOutput:
    """Decodes a log; the inverse of `encode_log`.

    Raises:
        BadOutputError: the text is not a complete log.
    """
    if not (text.startswith(_FIRST_LINE) and text.endswith(_LAST_LINE)):
        raise _damaged("the first or the last line is not that of a raw log")
    sections = _sections(text, len(_FIRST_LINE), len(text) - len(_LAST_LINE))
    try:
        result = sections.get("result")
        return ProgramOutput(
            run=ProgramCall(
                argv=tuple(shlex.split(sections["argv"])),
                result_file=sections.get("result_file"),
                log_tag=sections.get("log_tag"),
                warmup_runs=int(sections["warmup_runs"]),
            ),
            exit_code=int(sections["exit_code"]),
            stdout=sections["stdout"],
            stderr=sections["stderr"],
            result=None if result is None else base64.b64decode(result, validate=True),
            logcat=sections.get("logcat"),
        )
    except (KeyError, ValueError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _sections(text: str, at: int, last: int) -> dict[str, str]:
    sections: dict[str, str] = {}
    while at < last:
        heading = _HEADING.match(text, at)
        if heading is None:
            raise _damaged(f"no heading at character {at}")
        end = heading.end() + int(heading[2])
        if text[end : end + 1] != "\n":
            raise _damaged(f"the section at character {at} is cut off")
        sections[heading[1]] = text[heading.end() : end]
        at = end + 1
    return sections


def _damaged(why: str) -> BadOutputError:
    return BadOutputError(f"a raw log is damaged: {why}", "restore it; its row does not change")


def to_measurement(reading: ProgramReading, *, task_id: str, origin: Origin) -> Measurement:
    """A good measurement without conditions, flags and times; the agent adds those."""
    return Measurement(
        task_id=task_id,
        status=Status.OK,
        origin=origin,
        sample_kind=reading.sample_kind,
        samples_ns=reading.samples_ns,
        summary=reading.summary,
        load_ns=reading.load_ns,
        first_inference_ns=reading.first_inference_ns,
        warmup_ns=reading.warmup_ns,
        warmup_runs=reading.warmup_runs,
        memory_metric=reading.memory_metric,
        load_peak_memory_bytes=reading.load_peak_memory_bytes,
        run_peak_memory_bytes=reading.run_peak_memory_bytes,
        backend_nodes=reading.backend_nodes,
        graph_nodes=reading.graph_nodes,
        profile=reading.profile,
        worker=WorkerFacts(
            runtime_version=reading.runtime_version, settings=tuple(sorted(reading.settings))
        ),
    )


def read_log(text: str, runtime: Runtime, origin: Origin) -> Measurement:
    """What today's parser makes of a log, without conditions, flags and times.

    Raises:
        FleetError: the log is damaged, or the parser rejects the program's output.
    """
    reading = create_program(runtime).read(decode_log(text))
    return to_measurement(reading, task_id="", origin=origin)


LOGS = LogReader(
    is_own=lambda text: text.startswith(_MARK),
    read=read_log,
    # A profile is stored apart from the rows that a log is read for.
    fields=frozenset(one.name for one in dataclasses.fields(ProgramReading)) - {"profile"},
)
