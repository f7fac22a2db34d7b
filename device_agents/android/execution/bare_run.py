"""Runs a program on a phone as a person does: by `adb shell`, with plain flags, and reads its text.

Fleetrank's own way uses other settings of the phone, looks at it meanwhile and reads a result file.
"""

import shlex
from dataclasses import replace

from fleetrank.device_agents.android.adb_server import client_environment
from fleetrank.device_agents.android.execution.program_run import (
    PhonePrograms,
    clean_runs,
    latency_of,
    place_inputs,
    read,
    words_of,
)
from fleetrank.device_agents.android.programs.program_output import ProgramOutput
from fleetrank.device_agents.contract.proof import figure_ns
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.linux.bare_client import require_end, run_plain


def run_bare(programs: PhonePrograms, task: MeasureTask) -> tuple[int, ...]:
    """The samples of a task in nanoseconds, or the program's own figure; holds the phone's lease.

    Raises:
        FleetError: the errors of `PhonePrograms.place`, `require_end` and `read`.
    """
    placed, phone = programs.place(task), programs.phone
    plain = tuple(word for word in placed.argv if word.partition("=")[2] != placed.result_file)
    run = replace(placed, argv=plain, result_file=None)
    place_inputs(phone, run)
    where = ("-H", phone.server.host, "-P", str(phone.server.port), "-s", phone.serial)
    command = shlex.join(words_of(run, task.execution.affinity))
    adb = (str(phone.server.adb), *where, "shell", command)
    end = run_plain(adb, task, client_environment())
    clean_runs(phone)
    require_end(end)
    output = ProgramOutput(run=run, exit_code=end.exit_code, stdout=end.stdout, stderr=end.stderr)
    reading = read(task, output)
    return reading.samples_ns or (figure_ns(reading) or latency_of(reading),)
