"""ExecuTorch: its own trace of the kernels (ETDump), read by its developer tools.

XNNPACK names its operators and not the modules that they come from, so the modules are unknown.
"""

import importlib
import re
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadOutputError, missing_library
from fleetrank.device_agents.runtimes.executorch_runner import ExecutorchRunner
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.units import NS_PER_MS

_RUNS = "Execute"
"""Name of the blocks of inferences; the others are of loading."""
_OWN_KERNEL = "native_call_"
"""Starts the name of a kernel of ExecuTorch; other events outside of a delegate contain kernels."""
_NUMBER = re.compile(r" #\d+$")


class _Times(Protocol):
    raw: Sequence[float]


class TraceEvent(Protocol):
    """One step of the program; `perf_data.raw` has its milliseconds in each inference."""

    name: str
    is_delegated_op: bool | None
    perf_data: _Times


class ExecutorchProfiler:
    """It fulfils `Profiler`. The worker's parent removes the folder of the trace."""

    def __init__(self) -> None:
        self.runner = ExecutorchRunner(is_traced=True)

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads a program whose kernels are timed."""
        return self.runner.load(path, execution)

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """Writes the trace and reads the kernels of the last runs."""
        if self.runner.program is None:
            raise BadOutputError("no program is loaded", "load one before")
        path = Path(tempfile.mkdtemp(prefix="fleetrank-profile-"), "trace.etdp")
        self.runner.program.write_etdump_result_to_file(str(path))
        try:
            devtools = importlib.import_module("executorch.devtools")
        except ImportError as error:
            raise missing_library("executorch.devtools", "executorch", error) from error
        remedy = "a file from outside needs `trust=true`: the tools start a program to read a trace"
        explained = failing_as(BadOutputError, "ExecuTorch's trace cannot be read", remedy)
        with explained, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            blocks = devtools.Inspector(etdump_path=str(path)).event_blocks
        return runs_of(
            [event for block in blocks if block.name == _RUNS for event in block.events], count
        )


def runs_of(events: Iterable[TraceEvent], count: int) -> list[list[Kernel]]:
    """The kernels of the last runs; without the events that contain other events.

    Raises:
        BadOutputError: a kernel has fewer times than there were runs.
    """
    kernels = [one for one in events if one.is_delegated_op or one.name.startswith(_OWN_KERNEL)]
    if any(len(one.perf_data.raw) < count for one in kernels):
        raise BadOutputError(
            "ExecuTorch's trace lacks runs", "use the version of ExecuTorch in constraints.txt"
        )
    names = [f"{number}: {one.name}" for number, one in enumerate(kernels)]
    return [
        [
            Kernel(
                node=name,
                module=None,
                operator=_NUMBER.sub("", one.name.removeprefix(_OWN_KERNEL)),
                kernel_ns=round(one.perf_data.raw[place] * NS_PER_MS),
            )
            for name, one in zip(names, kernels, strict=True)
        ]
        for place in range(-count, 0)
    ]
