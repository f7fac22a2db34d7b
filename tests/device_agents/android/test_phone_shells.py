"""The scripts that run on phones, under the shell and the tools of Android: mksh and toybox."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from adb_bench import TINY_TFLITE, AdbBench, failure_of, leftovers, open_bench, phone_options
from phone_farm.faults import Fault
from phone_farm.folder import HOST_PROGRAMS
from phone_farm.imitation.command import stand_in_of
from programs import need

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import file_sha256, read_program
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.phone_registration import PhoneRegistrar
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.android.state.settings import FOLDER, settings_for_measuring
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.device_agents.linux.energy import MIN_STEPS
from fleetrank.foundation.vocabulary import EnergyMethod, ErrorKind, Runtime, Status

pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]
LIBRARY = "libQnnTFLiteDelegate.so"


@pytest.fixture(scope="module")
def android(adb_server: AdbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbBench]:
    """A phone whose shell is mksh and whose tools are toybox's, where toybox has them."""
    folder = tmp_path_factory.mktemp("android")
    mksh, toybox = need("mksh"), need("toybox")
    known = subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split()
    with (
        pytest.MonkeyPatch.context() as patch,
        open_bench(adb_server, folder / "phones", Path.home()) as bench,
    ):
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        programs = bench.farmed.folder / "system/bin"
        for name in HOST_PROGRAMS:
            if name in known and name != "sh":
                replace_link(programs / name, toybox)
        replace_link(programs / "sh", mksh)
        yield bench


def replace_link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def test_the_phones_shell_is_mksh_and_its_tools_are_toyboxs(android: AdbBench) -> None:
    answer = android.phone.shell(
        'echo "$KSH_VERSION"; readlink -f "$(command -v cat)"', timeout_s=20
    )
    assert "MIRBSD KSH" in answer.stdout
    assert "toybox" in answer.stdout


@pytest.mark.thorough
def test_every_script_of_a_repeat_works(android: AdbBench, tmp_path: Path) -> None:
    """Probe, push of a folder, settings, run, watch of cores, energy, log, and cleaning."""
    android.inject(Fault.UNPLUGGED)
    facts = probe_phone(android.phone)
    assert [len(cluster.cores) for cluster in facts.clusters] == [1, 4, 4]
    assert None not in (facts.memory_bytes, facts.free_bytes, facts.unit_hash, facts.gpu)
    folder = tmp_path / "qnn"
    folder.mkdir()
    shutil.copy(stand_in_of("benchmark_model"), folder / "benchmark_model")
    (folder / LIBRARY).write_bytes(b"a library")
    program = read_program("benchmark_model", folder)
    ProgramStore().add(program)
    options = phone_options(android.phone.server, android.farmed.address)
    options |= {"benchmark_model": program.sha256, "energy_look_s": 0.1}
    task = MeasureTask(
        task_id="t",
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=file_sha256(TINY_TFLITE),
        execution=Execution(
            runtime=Runtime.TFLITE, backend="external:QnnTFLiteDelegate", affinity=(4, 5)
        ),
        policy=MeasurePolicy(min_warmup_s=0.0, min_runs=8, max_time_s=1.0, energy_s=0.5),
        limits=RepeatLimits(timeout_s=60.0),
    )
    android.inject(Fault.SLOW_RUN)
    seen = AndroidAgent(options).measure(task)
    assert seen.status is Status.OK, seen.failure
    assert (seen.backend_nodes, seen.graph_nodes) == (52, 65)
    assert seen.energy.method is EnergyMethod.ODPM_COUNTER
    # A busy host takes fewer looks in the time of the window.
    assert seen.energy.counter_steps is not None
    assert (seen.energy.per_inference_mj is None) == (seen.energy.counter_steps < MIN_STEPS)
    assert seen.conditions_after.clock_cap_mhz == 2914.0
    assert seen.worker.affinity is not None
    assert leftovers(android.farmed.folder) == []
    execution = replace(task.execution, backend="external:Neuron")
    failure = failure_of(AndroidAgent(options).measure(replace(task, execution=execution)))
    assert failure.kind is ErrorKind.UNSUPPORTED
    assert "libNeuron.so" in failure.message


def test_settings_are_put_back_and_our_folder_is_removed(android: AdbBench) -> None:
    ask = 'settings get global "$1"'
    key = "heads_up_notifications_enabled"
    android.phone.shell('settings put global "$1" 1', key, timeout_s=20)
    with settings_for_measuring(android.phone) as applied:
        assert applied
        assert android.phone.shell(ask, key, timeout_s=20).stdout.strip() == "0"
    assert android.phone.shell(ask, key, timeout_s=20).stdout.strip() == "1"
    options = phone_options(android.phone.server, android.farmed.address)
    PhoneRegistrar({}).clean(options)
    assert not (android.farmed.folder / FOLDER[1:]).exists()


def test_no_name_is_code_in_mksh(android: AdbBench) -> None:
    for name in ("a b", "-rf", "$(touch pwned)", "'; touch pwned; '", "`touch pwned`", "*", "a\nb"):
        assert android.phone.shell('printf %s "$1"', name, timeout_s=20).stdout == name
    assert not list(android.farmed.folder.rglob("pwned"))
