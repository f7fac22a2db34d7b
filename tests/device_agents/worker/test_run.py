import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from daily import daily

from fleetrank.device_agents.android.programs.phone_program import READ
from fleetrank.device_agents.contract.measurement import Conditions, WorkerFacts
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.worker.infer import infer
from fleetrank.device_agents.worker.measure import _has_nan, measure
from fleetrank.device_agents.worker.run import Caller, Loaded, run_loaded
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Runtime, Status
from tests.device_agents.conftest import infer_task, make_task, measure_here, plain_task, save_check

WARM_UP = MeasurePolicy(min_warmup_runs=4, min_warmup_s=0.0, max_warmup_s=0.0, energy_s=0.0)


@dataclass
class Counted:
    """A model and its watch: the peak of memory grows by a byte with each run."""

    runs: int = 0
    inputs: tuple[()] = ()
    settings: tuple[()] = ()
    memory_metric = None

    def run(self) -> None:
        self.runs += 1

    def peak_bytes(self) -> int:
        return self.runs

    def warm(self, before: Conditions) -> Conditions:
        return before

    def conditions(self, _: object) -> Conditions:
        return Conditions()

    def start_run_memory(self) -> None:
        pass

    def flush(self) -> None:
        pass


def test_the_storage_of_the_samples_is_not_memory_of_the_model() -> None:
    counted: Any = Counted()
    loaded = Loaded(
        model=counted, seen=replace(READ, baseline_memory_bytes=0), source=None, idle=None
    )
    task = plain_task(policy=WARM_UP)  # fmt: skip
    ran = run_loaded(loaded, task, counted, Conditions(), Caller(enter=lambda _: None))
    assert ran.seen.run_peak_memory_bytes == ran.seen.warmup_runs < counted.runs


@pytest.mark.slow
def test_nothing_is_collected_between_the_warm_up_and_the_last_timed_run(onnx_file: Path) -> None:
    pytest.importorskip("onnxruntime")
    is_on: dict[str, bool] = {}
    caller = Caller(enter=lambda stage: is_on.update({stage: gc.isenabled()}))
    found = measure(make_task(onnx_file, Runtime.ONNX), WorkerFacts(), caller, None)
    assert found.status is Status.OK
    assert (is_on["load"], is_on["warmup"], is_on["timed"]) == (True, False, False)
    assert gc.isenabled()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "reason"),
    [(1.0001, None), (np.nan, "output 0 holds values that are not finite"), (0.0, "error 1 ")],
    ids=["alike", "not a number", "zeros"],
)
def test_outputs_are_compared_with_those_that_travelled_with_the_file(
    onnx_file: Path, tmp_path: Path, factor: float, reason: str | None
) -> None:
    pytest.importorskip("onnxruntime")
    images = np.random.default_rng(0).standard_normal((3, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=images)
    assert infer(infer_task(onnx_file, tmp_path), lambda _: None, None) is None
    with np.load(tmp_path / "out.npz") as found:
        check = save_check(tmp_path, images * np.float32(factor), found["output_0"])
    seen = measure_here(make_task(onnx_file, Runtime.ONNX, check_path=check))
    if reason is None:
        assert seen.status is Status.OK, seen.failure
        assert seen.snr_db == pytest.approx(80, abs=0.1)
    else:
        assert seen.failure is not None
        assert (seen.failure.kind, seen.failure.stage) == (ErrorKind.WRONG_OUTPUT, "verify")
        assert not seen.failure.is_transient
        assert reason in seen.failure.message


@pytest.mark.parametrize(
    ("outputs", "flagged"),
    [
        ([np.zeros(3), np.array([1, np.nan], "float16")], True),
        ([[{"a": 1.0}], np.array(complex(0, np.nan))], True),
        ([np.full(3, np.inf)], True),
        ([np.array([-np.inf, 1.0])], False),
        ([np.zeros((0, 4)), np.array(["a"]), np.ones(2, bool), np.ones(2, "int8")], False),
        (None, False),
    ],
)
def test_outputs_that_are_not_numbers_are_noticed(outputs: Any, flagged: bool) -> None:
    # `None` cannot be read: the row stays as it is.
    assert _has_nan(Mock(outputs=lambda: outputs)) is flagged


@pytest.mark.slow
@pytest.mark.parametrize("runtime", daily(list(Runtime), Runtime.ONNX))
@pytest.mark.parametrize("value", [0.5, np.nan])
def test_a_row_whose_outputs_are_not_numbers_has_its_flag(
    task_of, tmp_path: Path, runtime: Runtime, value: float
) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 3, 16, 16), value, "float32"))
    values = Values(path=str(tmp_path / "x.npy"), sha256=file_sha256(tmp_path / "x.npy"))
    stated = ModelInput(name="x", shape=(1, 3, 16, 16), dtype="float32", values=values)
    task = task_of(runtime)
    found = measure_here(replace(task, execution=replace(task.execution, inputs=(stated,))))
    assert found.status is Status.OK, found.failure
    assert (Flag.NAN_OUTPUTS in found.flags) is bool(np.isnan(value))


@pytest.mark.slow
def test_a_library_without_its_parts_is_called_damaged(
    task_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pytest.importorskip("onnxruntime"), "InferenceSession")
    failure = measure_here(task_of(Runtime.ONNX)).failure
    assert failure.kind is ErrorKind.MISSING_LIBRARY, failure
    assert "--force-reinstall" in failure.remedy
