import pytest

from fleetrank.device_agents.android.options import read_options
from fleetrank.device_agents.android.programs.phone_program import (
    NAME_OF_RUNTIME,
    PROGRAMS,
    create_program,
    one_for_each_runtime,
    why_unsupported,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.foundation.vocabulary import Runtime


def test_every_program_is_found_by_its_runtime() -> None:
    assert set(NAME_OF_RUNTIME) == {"tflite", "onnx", "executorch"}
    for runtime, name in NAME_OF_RUNTIME.items():
        assert create_program(Runtime(runtime)).name == name
    assert sorted(NAME_OF_RUNTIME.values()) == sorted(PROGRAMS)


def test_a_second_program_of_a_runtime_is_refused() -> None:
    table = ((Runtime.TFLITE, "one", "m:One"), (Runtime.TFLITE, "two", "m:Two"))
    with pytest.raises(ValueError, match="one and two both run tflite"):
        one_for_each_runtime(table)


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
