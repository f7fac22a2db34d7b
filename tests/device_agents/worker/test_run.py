import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fleetrank.device_agents.android.programs.phone_program import READ
from fleetrank.device_agents.contract.measurement import Conditions, WorkerFacts
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.worker.measure import measure
from fleetrank.device_agents.worker.run import Caller, Loaded, run_loaded
from fleetrank.foundation.vocabulary import Runtime, Status
from tests.device_agents.conftest import make_task, plain_task

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
