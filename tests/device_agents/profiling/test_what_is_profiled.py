"""Which cells a kind of device refuses to profile, before anything is loaded or sent."""

import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.registry import KINDS
from fleetrank.foundation.vocabulary import Mode, Runtime
from fleetrank.foundation.workload import Workload


@pytest.mark.parametrize("kind", ["cpu", "board", "cuda"])
@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_a_gpu_is_refused_with_the_reason(kind: str, backend: str) -> None:
    why = KINDS[kind].why_not_profiled
    assert why is not None
    assert "GPU" in str(why(Execution(runtime=Runtime.ONNX, backend=backend)))


@pytest.mark.parametrize("kind", ["cpu", "board"])
def test_what_has_nodes_and_one_inference_is_profiled(kind: str) -> None:
    why = KINDS[kind].why_not_profiled
    assert why is not None
    for runtime in (Runtime.ONNX, Runtime.TORCH, Runtime.EXECUTORCH):
        assert why(Execution(runtime=runtime, backend="cpu")) is None
    assert "tflite" in str(why(Execution(runtime=Runtime.TFLITE, backend="xnnpack")))
    compiled = Execution(runtime=Runtime.TORCH, backend="cpu", mode=Mode.COMPILE)
    assert "compile" in str(why(compiled))
    loop = Workload.parse("generate@8+4")
    assert "prefill" in str(why(Execution(runtime=Runtime.ONNX, backend="cpu", workload=loop)))
