"""A GPU server over ssh: the agent of GPUs runs there, with a stand-in for the driver's binding."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fake_gpu
import pytest
from ssh_board import SshBoard, ssh_board

from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.board.board_registrar import BoardRegistrar
from fleetrank.device_agents.contract.kind import CanaryFile, EnergyMeter, RegistrationRequest
from fleetrank.device_agents.contract.task import Execution, OptionValue
from fleetrank.device_agents.registration import try_out
from fleetrank.device_agents.registry import KINDS
from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Tier
from tests.device_agents.conftest import make_task

pytestmark = pytest.mark.slow

_BINDING = "from fake_gpu import fake_binding\nglobals().update(vars(fake_binding()))\n"
TORCH = Execution(runtime=Runtime.TORCH, backend="cuda")


@pytest.fixture
def server(short_runtime: None) -> Iterator[SshBoard]:
    """A board whose Python finds a driver with one H100."""
    with ssh_board(login='PYTHONPATH="$HOME/fake"; export PYTHONPATH') as found:
        (found.home / "fake").mkdir()
        shutil.copy(fake_gpu.__file__, found.home / "fake")
        (found.home / "fake" / "pynvml.py").write_text(_BINDING)
        yield found


def given(board: SshBoard, **options: OptionValue) -> dict[str, OptionValue]:
    found = {"python": sys.executable, "max_wait_s": 0.0, "max_temp_c": 150.0, "gpu": "only"}
    return {**board.options, **found, **options}


def no_canary() -> CanaryFile:
    raise AssertionError("a canary on a GPU")


@pytest.mark.thorough
def test_a_gpu_is_registered_beside_its_board(server: SshBoard) -> None:
    request = RegistrationRequest(address="board", options=given(server))
    met = BoardRegistrar({}).meet(request, lambda _line: None)
    assert met.model == fake_gpu.H100.name
    options = met.options({})
    assert options["tier"] == Tier.GPU
    assert try_out(met, options, no_canary, print).canary_latency_ns == ()
    board = met.identity
    assert board.endswith("/only"), "its board is another device"
    facts = BoardAgent(options).probe()
    assert (facts.device_model, facts.tier) == (fake_gpu.H100.name, Tier.GPU)
    assert KINDS["board"].traits_of(options).energy is EnergyMeter.DEVICE


@pytest.mark.thorough
def test_a_repeat_reaches_the_worker_of_the_gpu(server: SshBoard, pt2_file: Path) -> None:
    task = replace(make_task(pt2_file, Runtime.TORCH, is_trusted=True), execution=TORCH)
    failure = BoardAgent(given(server)).measure(task).failure
    assert failure.kind in {ErrorKind.UNSUPPORTED, ErrorKind.DEVICE_LOST}
    # The driver answered, and the worker there asked PyTorch, which is a build without CUDA.
    assert "PyTorch" in failure.message


def test_processor_and_gpu_of_a_board_are_two_devices() -> None:
    cpu, gpu = BoardAgent({"ssh": "server"}), BoardAgent({"ssh": "server", "gpu": "only"})
    on_cpu = Execution(runtime=Runtime.ONNX, backend="cpu")
    assert cpu.why_unsupported(on_cpu) is None
    assert gpu.why_unsupported(on_cpu) is not None
    assert gpu.why_unsupported(TORCH) is None
    assert "option gpu" in (cpu.why_unsupported(TORCH) or "")
