import pytest

from fleetrank.device_agents.android.runners.program_registry import (
    RUNNERS,
    create_phone_runner,
    why_unsupported,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.vocabulary import Runtime


def test_every_runner_is_found_by_its_runtime() -> None:
    tools = {create_phone_runner(runtime).tool for runtime in (Runtime.TFLITE, Runtime.ONNX)}
    assert tools == {"benchmark_model", "onnxruntime_perf_test"}
    assert set(RUNNERS) == {"tflite", "onnx", "executorch"}


def test_a_runtime_no_phone_has_is_refused_with_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match="use executorch, onnx, tflite"):
        create_phone_runner(Runtime.TORCH)
    execution = Execution(runtime=Runtime.TORCH, backend="cpu")
    assert "no program runs torch" in (why_unsupported(execution) or "")


def test_what_a_runner_can_do_is_not_refused() -> None:
    assert why_unsupported(Execution(runtime=Runtime.TFLITE, backend="xnnpack")) is None
