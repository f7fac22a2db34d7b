"""`ort_runner`, our own program for ONNX files in ONNX Runtime: `ort_runner.c` beside this module.

It gets the inputs that a host would get, prints every sample, its memory and the placement, and
leaves outputs to compare. `make ort-runner` builds it; the user gives it in a folder with
`libonnxruntime.so`.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from fleetrank.device_agents.android.programs.phone_program import READ, PhoneProgram, reported
from fleetrank.device_agents.android.programs.program_output import (
    ProgramCall,
    ProgramOutput,
    Wording,
)
from fleetrank.device_agents.android.programs.program_text import (
    not_a_result,
    readable,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, MeasureTask, Options
from fleetrank.device_agents.device_output import MAX_DIGITS
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.device_agents.linux.worker_process import growth_bytes
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.onnx_runner import SWITCHES
from fleetrank.device_agents.worker.artifact_checks import check_artifact, check_batch
from fleetrank.device_agents.worker.chained_runs import is_chain
from fleetrank.device_agents.worker.infer import compare_with, read_stored, run_stored
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.onnx_file import ELEMENT_TYPES, onnx_inputs
from fleetrank.foundation.vocabulary import MemoryMetric

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "nnapi": "NnapiExecutionProvider",
}
_NUMBERS = {
    name: number
    for number, name in ELEMENT_TYPES.items()
    if name not in ("string", "bfloat16", "uint4", "int4")
}
"""Names in NumPy; ONNX Runtime's numbers are those of ONNX."""
_NAMES = {number: name for name, number in _NUMBERS.items()}
_MOST_SIZES = 64
_HEAD = struct.Struct("<qq")
_BYTES_PER_KIB = 1024

_NUMBER = f"([0-9]{{1,{MAX_DIGITS}}})"
_LOADED = re.compile(rf"^load_ns {_NUMBER}$", re.MULTILINE)
_FIRST = re.compile(rf"^first_ns {_NUMBER}$", re.MULTILINE)
_WARMUP = re.compile(rf"^warmup {_NUMBER} {_NUMBER}$", re.MULTILINE)
_SAMPLE = re.compile(rf"^sample {_NUMBER}$", re.MULTILINE)
_TIMED = re.compile(rf"^timed {_NUMBER} {_NUMBER}$", re.MULTILINE)
_MEMORY = re.compile(rf"^memory_kib (-1|{_NUMBER}) (-1|{_NUMBER}) (-1|{_NUMBER})$", re.MULTILINE)
_NODES = re.compile(r"^nodes ([A-Za-z]{1,80}) ([0-9]{1,9})$", re.MULTILINE)
_VERSION = re.compile(r"^runtime ([0-9A-Za-z.+-]{1,40})$", re.MULTILINE)
_DONE = re.compile(r"^done$", re.MULTILINE)


class OrtRunner(PhoneProgram):
    """Backends: `cpu`, `xnnpack`, `nnapi`; options as of ONNX Runtime on a host's processor.

    Warm-up and timed runs end by their numbers and times; neither the halves of the warm-up nor
    the half-width of the median decides. The file is compared with its network after the samples.
    """

    name = "ort_runner"
    artifact_suffix = ".onnx"
    capability = Capability(backends=tuple(_PROVIDERS), option_names=frozenset(SWITCHES))
    wording = Wording(
        unsupported=(
            "is not supported in this build", "NOT_IMPLEMENTED",
            "Could not find an implementation", "is not a registered function/op",
            "No Op registered for", "No opset import for domain", "is under development",
            "failed dlopen", "failed GetApi",
        ),
        bad_artifact=(
            "Protobuf parsing failed", "INVALID_PROTOBUF", "INVALID_GRAPH", "NO_SUCHFILE",
            "Load model from", "INVALID_ARGUMENT",
        ),
        build="a folder with ort_runner and a libonnxruntime.so 1.24 or newer that has it",
    )  # fmt: skip
    runs_for_a_time = True

    def why_not_stated(self, execution: Execution) -> str | None:
        """Says which option has a wrong value, or `None`; every input can be given."""
        wrong = (f"option {name} is {value!r}" for name, value in execution.options
                 if not isinstance(value, bool))  # fmt: skip
        return next(wrong, None)

    def call(
        self, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line."""
        policy, chosen = task.policy, dict(task.execution.options)
        inputs_file, outputs_file = f"{run_folder}/inputs", f"{run_folder}/outputs"
        words = {
            "model": artifact_path,
            "inputs": inputs_file,
            "outputs": outputs_file,
            "provider": task.execution.backend,
            "threads": task.execution.threads,
            **{entry: int(chosen.get(name, usual)) for name, (usual, entry) in SWITCHES.items()},
            "warmup_runs": policy.min_warmup_runs,
            "warmup_s": policy.min_warmup_s,
            "max_warmup_s": policy.max_warmup_s,
            "runs": policy.min_runs,
            "observed_s": policy.min_observed_s,
            "max_s": policy.max_time_s,
            "max_runs": policy.max_samples,
            "least_s": policy.min_time_s,
        }
        return ProgramCall(
            argv=(program_path, *(f"{name}={value}" for name, value in words.items())),
            inputs_file=inputs_file,
            outputs_file=None if task.check_path is None else outputs_file,
        )

    def input_bytes(self, task: MeasureTask) -> bytes:
        """The inputs that a host would time, then those of the network's outputs."""
        specs = _input_specs(task)
        cases = [make_inputs(specs, task.seed), *_check_cases(task, specs)]
        return b"".join(encode_tensor(one) for case in cases for one in case)

    def compared(self, task: MeasureTask, output: ProgramOutput) -> OutputComparison | None:
        """The outputs on the phone beside those of the network in fp32."""
        specs = _input_specs(task) if task.check_path is not None else ()
        count = len(_check_cases(task, specs))
        if task.check_path is None or not count:
            return None
        outputs = list(decode_tensors(output.outputs or b""))
        if not outputs or len(outputs) % count:
            raise not_a_result(f"{len(outputs)} outputs of {count} cases")
        model = _Elsewhere(specs, outputs, len(outputs) // count)
        stored = read_stored(task.check_path)
        actual = run_stored(stored, task.execution, lambda _: model)
        return compare_with(actual, task.check_path, task.execution)

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        text = readable(output).stdout
        samples_ns = tuple(to_latency_ns(ns, 1, "a sample") for ns in _SAMPLE.findall(text))
        warmup, timed = _WARMUP.search(text), _TIMED.search(text)
        loaded, first, version = (one.search(text) for one in (_LOADED, _FIRST, _VERSION))
        if not (warmup and timed and loaded and first and _DONE.search(text)):
            raise not_a_result("it ends before the last line")
        if not samples_ns or int(timed[1]) != len(samples_ns):
            raise not_a_result(f"{len(samples_ns)} samples, {timed[1]} announced")
        words = dict(word.partition("=")[::2] for word in output.run.argv[1:])
        sustained_ns = to_ns(timed[2], 1, "the time of all runs")
        on_backend, nodes = _placement(text, words.get("provider", ""))
        return replace(
            _with_memory(text),
            samples_ns=samples_ns,
            load_ns=to_ns(loaded[1], 1, "the load"),
            first_inference_ns=to_latency_ns(first[1], 1, "the first inference"),
            warmup_runs=int(warmup[1]),
            warmup_ns=to_ns(warmup[2], 1, "the warm-up"),
            sustained_ns=sustained_ns if float(words.get("least_s", "0")) > 0 else None,
            backend_nodes=on_backend,
            graph_nodes=nodes,
            worker=replace(
                reported({
                    "graph_optimization": "all",
                    "intra_op_threads": int(words.get("threads", "0")),
                    **{name: words.get(entry) == "1" for name, (_, entry) in SWITCHES.items()},
                }),
                runtime_version=version[1] if version else None,
            ),
        )  # fmt: skip


class _Elsewhere:
    """A file that runs on a phone: keeps the inputs, and gives outputs in their order."""

    settings: Options = ()

    def __init__(
        self, inputs: Sequence[ModelInput], outputs: Sequence[Array] = (), each: int = 0
    ) -> None:
        self.inputs, self.cases = inputs, list[list[Array]]()
        self._outputs, self._each = outputs, each

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        self.cases.append(list(arrays))

    def run(self) -> None:
        pass

    def outputs(self) -> list[Array]:
        end = len(self.cases) * self._each
        return list(self._outputs[end - self._each : end])


def _check_cases(task: MeasureTask, specs: Sequence[ModelInput]) -> list[list[Array]]:
    """The inputs of the network's outputs; empty for a chain, whose inputs are outputs."""
    if task.check_path is None:
        return []
    check_artifact(task.check_path, Path(task.check_path).stem)
    stored = read_stored(task.check_path)
    model = _Elsewhere(specs)
    if not is_chain(stored):
        run_stored(stored, task.execution, lambda _: model)
    return model.cases


def _input_specs(task: MeasureTask) -> tuple[ModelInput, ...]:
    """The inputs of the file with all sizes, as the runner of a host finds them."""
    remedy = "export it again, or check where it comes from"
    with failing_as(BadArtifactError, f"the inputs of {task.artifact_path} cannot be read", remedy):
        found = found_inputs(Path(task.artifact_path).read_bytes())
    specs = specs_of(found, task.execution)
    if not task.execution.inputs:
        check_batch(specs, task.execution.batch)
    return specs


def found_inputs(model: bytes) -> list[FoundInput]:
    """The inputs of an ONNX file that are not weights.

    Raises:
        ValueError: the bytes are no model.
        UnsupportedError: an input is not an array of numbers.
    """
    inputs = onnx_inputs(model)
    for name in (one.name for one in inputs if one.dtype not in _NUMBERS):
        raise UnsupportedError(
            f"input {name!r} is not an array of numbers", "use a model whose inputs are numbers"
        )
    return [
        FoundInput(
            name=one.name,
            sizes=tuple(size if isinstance(size, int) else None for size in one.sizes),
            dtype=one.dtype,
        )
        for one in inputs
    ]


def encode_tensor(array: Array) -> bytes:
    """An array as `ort_runner.c` reads it."""
    numbers = (_NUMBERS[array.dtype.name], array.ndim, *array.shape, array.nbytes)
    return struct.pack(f"<{len(numbers)}q", *numbers) + array.tobytes()


def decode_tensors(data: bytes) -> Iterator[Array]:
    """The arrays that `ort_runner.c` wrote.

    Raises:
        BadOutputError: the bytes are cut off, or are something else.
    """
    at = 0
    while at < len(data):
        try:
            array, at = _decode_tensor(data, at)
        except (struct.error, ValueError, KeyError) as error:
            raise not_a_result(f"an output cannot be read: {error}") from error
        yield array


def _decode_tensor(data: bytes, at: int) -> tuple[Array, int]:
    """The array at this place, and the place behind it."""
    number, rank = _HEAD.unpack_from(data, at)
    if not 0 <= rank <= _MOST_SIZES:
        raise ValueError(f"it has {rank} sizes")
    *sizes, n_bytes = struct.unpack_from(f"<{rank + 1}q", data, at + _HEAD.size)
    at += _HEAD.size + 8 * (rank + 1)
    dtype = np.dtype(_NAMES[number])
    if min(sizes, default=0) < 0 or prod(sizes) * dtype.itemsize != n_bytes:
        raise ValueError(f"it has {n_bytes} bytes for {sizes}")
    return np.frombuffer(data, dtype, prod(sizes), at).reshape(sizes), at + n_bytes


def _placement(text: str, backend: str) -> tuple[int, int]:
    """Nodes on the backend, and all nodes.

    Raises:
        UnsupportedError: none ran there, so the latency would be that of another backend.
    """
    counts = [(name, int(count)) for name, count in _NODES.findall(text)]
    on_backend = sum(count for name, count in counts if name == _PROVIDERS.get(backend))
    nodes = sum(count for _, count in counts)
    if not on_backend:
        raise UnsupportedError(
            f"0 of {nodes} nodes of this file ran on {backend}", "measure it with backend cpu"
        )
    return on_backend, nodes


def _with_memory(text: str) -> Measurement:
    """The growth of the peak resident set; missing where the phone hides it."""
    if (found := _MEMORY.search(text)) is None:
        return READ
    baseline, loaded, warm = (
        None if found[group] == "-1" else int(found[group]) * _BYTES_PER_KIB for group in (1, 3, 5)
    )
    return replace(
        READ,
        memory_metric=MemoryMetric.VMHWM_GROWTH,
        baseline_memory_bytes=baseline,
        load_peak_memory_bytes=growth_bytes(baseline, loaded),
        run_peak_memory_bytes=growth_bytes(baseline, warm),
    )
