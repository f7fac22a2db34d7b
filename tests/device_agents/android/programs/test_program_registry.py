import pytest

from fleetrank.device_agents.android.programs.phone_program import (
    NAME_OF_RUNTIME,
    PROGRAMS,
    create_program,
    why_unsupported,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.vocabulary import Runtime


def test_every_program_is_found_by_its_runtime() -> None:
    assert set(NAME_OF_RUNTIME) == {"tflite", "onnx", "executorch"}
    for runtime, name in NAME_OF_RUNTIME.items():
        assert create_program(Runtime(runtime)).name == name
    assert sorted(NAME_OF_RUNTIME.values()) == sorted(PROGRAMS)


def test_a_runtime_no_phone_has_is_refused_with_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match="use executorch, onnx, tflite"):
        create_program(Runtime.TORCH)
    execution = Execution(runtime=Runtime.TORCH, backend="cpu")
    assert "no program runs torch" in (why_unsupported(execution) or "")


def test_what_a_program_can_do_is_not_refused() -> None:
    assert why_unsupported(Execution(runtime=Runtime.TFLITE, backend="xnnpack")) is None
