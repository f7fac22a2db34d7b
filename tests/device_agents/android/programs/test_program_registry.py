import pytest

from fleetrank.device_agents.android.agent import read_options
from fleetrank.device_agents.android.programs.phone_program import (
    PROGRAMS,
    create_program,
    why_unsupported,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.foundation.vocabulary import Runtime


def test_each_program_is_an_option_of_a_phone() -> None:
    programs = {name: f"sha256 of {name}" for name in PROGRAMS}
    read = read_options({"serial": "p", "settle_s": 1, **programs})
    assert (read.programs, read.settle_s) == (programs, 1.0)
    assert read_options({"serial": "p"}).programs == {}
    with pytest.raises(PermanentError, match=r"no option 'programs'.* executor_runner"):
        read_options({"serial": "p", "programs": "x"})
    with pytest.raises(PermanentError, match=r"benchmark_model is 1 .*be of type str\)"):
        read_options({"serial": "p", "benchmark_model": 1})


def test_a_runtime_no_phone_has_is_refused_with_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match="use executorch, onnx, tflite"):
        create_program(Runtime.TORCH)
    execution = Execution(runtime=Runtime.TORCH, backend="cpu")
    assert "no program runs torch" in (why_unsupported(execution) or "")


def test_what_a_program_can_do_is_not_refused() -> None:
    assert why_unsupported(Execution(runtime=Runtime.TFLITE, backend="xnnpack")) is None
