"""Runs the imitation of `torch_stopwatch`, reads its output, and registers it for a phone."""

import shutil
import subprocess
from pathlib import Path

from phone_farm.imitation.command import stand_in_of
from phone_farm.phone import PhoneSpec, VirtualPhone
from phone_farm.profile import find_profile

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.programs.phone_program import create_program
from fleetrank.device_agents.android.programs.program_output import ProgramOutput
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.foundation.vocabulary import Runtime

here = Path.cwd()
spec = PhoneSpec(
    name="p",
    profile=find_profile("pixel-8"),
    mode=VirtualMode.CANNED,
    seed=0,
    key_file=here / "key",
)
phone = VirtualPhone(spec, here, lambda: None)
program = create_program(Runtime.TORCH)
installed = shutil.copy(stand_in_of(program.name), phone.paths.root / program.name)
network = here / "net.pt2"
network.write_bytes(b"a network")
execution = Execution(runtime=Runtime.TORCH, backend="cpu", threads=2)
task = MeasureTask(
    task_id="t", artifact_path=str(network), artifact_sha256="0", execution=execution
)
call = program.plan_run(
    program_path=str(installed), artifact_path=str(network), run_folder="/", task=task
)
done = subprocess.run(
    call.argv, check=False, env=phone.environment(), capture_output=True, text=True
)
reading = program.read(
    ProgramOutput(run=call, exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
)
assert len(reading.samples_ns) == task.policy.min_runs
agent = AndroidAgent({"serial": "p", program.name: "0" * 64})
assert agent.why_unsupported(execution) is None
