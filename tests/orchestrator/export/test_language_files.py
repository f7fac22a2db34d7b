"""Files of language models: exported, run by the real worker, and compared with PyTorch."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from daily import daily

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.vocabulary import ErrorKind, Family, Format
from fleetrank.foundation.workload import Workload
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    Artifact,
    ExportRequest,
    ModelCard,
    Source,
    StagedExport,
    Weights,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.language import LanguageShape, Positions, language_inputs
from fleetrank.models.state_outputs import check_tflite_states
from fleetrank.orchestrator import one_export
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.one_export import ExportTools

SHAPE = LanguageShape(
    layers=2, width=16, heads=4, kv_heads=2, head_size=8, hidden=24, vocabulary=31, context=64
)
ENCODER = replace(SHAPE, is_encoder=True, positions=Positions.LEARNED)
CACHES = ("keys_0", "values_0", "keys_1", "values_1")
INPUTS = ("tokens", "positions", *CACHES)
OUTPUTS = ("logits", *(f"next_{name}" for name in CACHES))

Infer = Callable[[InferTask], Failure | None]


def request(
    format_: Format, workload: str, shape: LanguageShape = SHAPE, **fields: object
) -> ExportRequest:
    card = ModelCard(
        name="tiny",
        family=Family.LLAMA,
        source=Source.LANGUAGE,
        entry="tiny",
        input_size=None,
        inputs=language_inputs(shape),
        workloads=shape.workloads,
        language=shape,
    )
    return ExportRequest(
        model=resolve(card),
        weights=Weights(),
        format=format_,
        workload=Workload.parse(workload),
        **fields,
    )


def build(wanted: ExportRequest, folder: Path, infer: Infer | None = None) -> Artifact | Failure:
    tools = ExportTools(
        cache=ArtifactCache(folder),
        infer=infer or create_agent(HOST_CPU, {}).infer,
        emit=lambda _event: None,
        switch=StopSwitch(),
    )
    exports = build_artifacts([wanted], (), tools)
    return exports.artifacts.get(wanted) or exports.failures[wanted]


@pytest.mark.export
@pytest.mark.parametrize("workload", daily(["decode@12", "generate@6+5"], "decode@12"))
@pytest.mark.parametrize("format_", daily(Format))
def test_every_format_gives_the_outputs_and_states_of_pytorch(
    tmp_path: Path, format_: Format, workload: str
) -> None:
    artifact = build(request(format_, workload), tmp_path)
    assert isinstance(artifact, Artifact), artifact
    assert artifact.max_relative_error is not None
    assert artifact.max_relative_error < 1e-5
    signature = SIGNATURES[format_](Path(artifact.path))
    one = {Format.TFLITE: {"serving_default"}, Format.PTE: {"forward"}}
    both = {Format.TFLITE: {"prefill", "decode"}, Format.PTE: {"prefill", "decode"}}
    assert signature.keys() == (both if "+" in workload else one).get(format_, {"graph"})
    for names in signature.values():
        assert names in [None, (set(INPUTS), set(OUTPUTS))]
    if workload.startswith("decode"):
        assert_unknown_ids_are_an_error(artifact, tmp_path)
    if format_ is Format.TFLITE:
        inputs = request(format_, workload).inputs
        check_tflite_states(Path(artifact.path).read_bytes(), tmp_path, inputs)


def assert_unknown_ids_are_an_error(artifact: Artifact, folder: Path) -> None:
    """The runtimes read beyond the token table or refuse; a worker must not answer."""
    asked = request(artifact.format, "decode@12")
    caches = range(2, len(asked.inputs))
    np.savez(
        folder / "in.npz",
        input_0=np.full((1, 1, 1), SHAPE.vocabulary),
        input_1=np.array([[11]]),
        **{f"input_{k}": np.zeros(1, np.float32) for k in caches},
        **{f"every_{k}": np.array(1) for k in caches},
    )
    staged = StagedExport(
        path=Path(artifact.path), format=artifact.format, cost=artifact.cost, versions=()
    )
    task = one_export._infer_task(asked, staged, folder / "in.npz", folder / "out.npz")
    failure = create_agent(HOST_CPU, {}).infer(task)
    assert failure is not None, artifact.format
    assert failure.kind in {ErrorKind.BAD_ARTIFACT, ErrorKind.CRASHED}, failure


def _onnx_names(path: Path) -> dict[str, object]:
    import onnx

    graph = onnx.load(str(path)).graph
    # A tied head is the token table, and each weight is stored once.
    assert sum(list(tensor.dims) == [31, 16] for tensor in graph.initializer) == 1
    return {"graph": ({one.name for one in graph.input}, {one.name for one in graph.output})}


def _pt2_names(path: Path) -> dict[str, object]:
    import torch

    program = torch.export.load(path)
    assert program.graph_signature.user_inputs == INPUTS
    outputs = program.call_spec.out_spec.context
    return {"graph": (set(program.graph_signature.user_inputs), set(outputs))}


def _tflite_names(path: Path) -> dict[str, object]:
    from ai_edge_litert.interpreter import Interpreter

    found = Interpreter(str(path)).get_signature_list()
    return {key: (set(one["inputs"]), set(one["outputs"])) for key, one in found.items()}


_METHODS = """
import sys
from executorch.extension.pybindings import portable_lib
program = portable_lib._load_program(sys.argv[1])
print(*(program.get_method_name(number) for number in range(program.num_methods())))
"""


def _pte_names(path: Path) -> dict[str, object]:
    # In another process: importing the library warns about what other libraries do.
    command = [sys.executable, "-c", _METHODS, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # The format has no names of tensors.
    return dict.fromkeys(done.stdout.splitlines()[-1].split())


SIGNATURES = {
    Format.ONNX: _onnx_names,
    Format.PT2: _pt2_names,
    Format.TFLITE: _tflite_names,
    Format.PTE: _pte_names,
}


@pytest.mark.thorough
@pytest.mark.export
@pytest.mark.parametrize(
    ("wanted", "limit"),
    [
        (request(Format.ONNX, "prefill@6", batch=3), 1e-5),
        (request(Format.ONNX, "decode@4", precision="fp16"), 0.02),
        (request(Format.PT2, "decode@4", precision="bf16"), 0.1),
        (request(Format.PT2, "generate@1+1", batch=2), 1e-5),
        (request(Format.ONNX, "encode@6", ENCODER, batch=2), 1e-5),
        (request(Format.ONNX, "segment@6+k3+n4", batch=2), 1e-5),
        (request(Format.ONNX, "segment@6+k3+n4", precision="fp16"), 0.05),
        (request(Format.PT2, "segment@6+k0+n4", batch=2), 1e-5),
        (request(Format.PT2, "segment@6+k0+n0"), 1e-5),
        (request(Format.TFLITE, "segment@6+k3+n4"), 1e-5),
        (request(Format.PTE, "segment@6+k3+n4"), 1e-5),
    ],
    ids=lambda it: f"{it.format}-{it.workload}" if isinstance(it, ExportRequest) else "",
)
def test_batches_and_narrow_numbers_are_verified_too(
    tmp_path: Path, wanted: ExportRequest, limit: float
) -> None:
    artifact = build(wanted, tmp_path)
    assert isinstance(artifact, Artifact), artifact
    assert artifact.max_relative_error is not None
    assert artifact.max_relative_error < limit
