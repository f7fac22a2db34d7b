"""ONNX files beyond protobuf's limit, with a lowered limit: cached, verified, sent and measured."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fleetrank.device_agents.android.execution import program_run
from fleetrank.device_agents.comparison import compare_files
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.hosts.files import HostFiles, file_names
from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.codec import from_json
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Family, Format, Runtime, Status
from fleetrank.models import onnx_external_weights
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
from fleetrank.models.export.request import export_request

EXECUTION = Execution(runtime=Runtime.ONNX, backend="cpu")


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], Artifact]:
    """Takes over a user's file of one matrix, with a limit that the matrix exceeds."""
    monkeypatch.setattr(onnx_external_weights, "LARGEST_BYTES", 100)

    def make(operator: str, value: float) -> Artifact:
        path = tmp_path / f"{operator}-{value}.onnx"
        matrix = numpy_helper.from_array(np.full((16, 16), value, np.float32), "w")
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 16]) for name in "xy")
        graph = helper.make_graph(
            [helper.make_node(operator, ["x", "w"], ["y"])], "g", [x], [y], [matrix]
        )
        opsets = [helper.make_opsetid("", 20)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
        card = ModelCard(
            name="mine", family=Family.HYBRID, source=Source.FILE, entry=str(path), input_size=None
        )
        request = ExportRequest(model=resolve(card), weights=Weights(), format=Format.ONNX)
        cache = ArtifactCache(tmp_path / "cache")
        staged = export_request(request, cache.staging_dir(request), is_trusted=False)
        artifact = cache.commit(request, staged, None)
        assert cache.find(request) == artifact
        return artifact

    return make


def task_of(artifact: Artifact) -> MeasureTask:
    return MeasureTask(
        task_id="t",
        artifact_path=artifact.path,
        artifact_sha256=artifact.sha256,
        weights_path=artifact.weights_path,
        execution=EXECUTION,
        policy=MeasurePolicy(min_warmup_s=0, max_time_s=0.1, energy_s=0),
    )


def test_the_model_names_its_weights_by_their_content(
    cached: Callable[[str, float], Artifact],
) -> None:
    artifact = cached("MatMul", 2.0)
    assert artifact.weights_path is not None
    weights = Path(artifact.weights_path)
    assert file_sha256(weights) == weights.stem == artifact.weights_sha256
    assert weights.stat().st_size == 16 * 16 * 4
    assert artifact.size_bytes == Path(artifact.path).stat().st_size + 16 * 16 * 4
    tensor = onnx.load(artifact.path, load_external_data=False).graph.initializer[0]
    assert {entry.value for entry in tensor.external_data} >= {weights.name}
    assert numpy_helper.to_array(onnx.load(artifact.path).graph.initializer[0])[0, 0] == 2.0
    assert artifact.cost.parameters == 256


@pytest.mark.slow
def test_it_is_measured_and_a_change_of_its_weights_is_seen(
    cached: Callable[[str, float], Artifact],
) -> None:
    artifact = cached("MatMul", 2.0)
    agent = create_agent(HOST_CPU, {})
    # Not trusted: the confined worker may read both files, and no other of the folder.
    done = agent.measure(task_of(artifact))
    assert done.status is Status.OK, done.failure
    assert artifact.weights_path is not None
    Path(artifact.weights_path).write_bytes(bytes(16 * 16 * 4))
    done = agent.measure(task_of(artifact))
    assert done.failure is not None
    assert (done.failure.kind, done.failure.is_transient) == (ErrorKind.BAD_ARTIFACT, True)


def test_damaged_or_missing_weights_are_exported_again(
    tmp_path: Path, cached: Callable[[str, float], Artifact]
) -> None:
    artifact = cached("MatMul", 2.0)
    assert artifact.weights_path is not None
    Path(artifact.weights_path).write_bytes(b"0")
    cache = ArtifactCache(tmp_path / "cache")
    assert [one.sha256 for one in cache.entries()] == [artifact.sha256]
    assert cached("MatMul", 2.0) == artifact


def test_weights_that_another_model_shares_stay_until_both_go(
    tmp_path: Path, cached: Callable[[str, float], Artifact]
) -> None:
    first, second, other = cached("MatMul", 2.0), cached("Add", 2.0), cached("MatMul", 3.0)
    assert first.weights_path == second.weights_path != other.weights_path
    cache = ArtifactCache(tmp_path / "cache")
    whole_bytes = sum(path.stat().st_size for path in (tmp_path / "cache" / "files").iterdir())
    assert cache.prune(whole_bytes) == []
    assert first.weights_path is not None
    assert cache.prune(whole_bytes - 1) == [Path(first.path)]
    assert Path(first.weights_path).is_file()
    assert set(cache.prune(0)) == {
        Path(name)
        for one in (second, other)
        for name in (one.path, one.weights_path)
        if name is not None
    }


@pytest.mark.slow
def test_all_files_are_sent_to_a_host(
    tmp_path: Path, cached: Callable[[str, float], Artifact]
) -> None:
    artifact = cached("MatMul", 2.0)
    ones, check = np.ones((1, 16, 16), np.float32), tmp_path / "check.npz"
    np.savez(check, input_0=ones, output_0=32 * ones[0])
    check = check.rename(Path(artifact.path).with_name(f"{file_sha256(check)}.npz"))
    task = replace(task_of(artifact), check_path=str(check))
    names = file_names(task)
    assert names == (f"{artifact.sha256}.onnx", f"{artifact.weights_sha256}.data", check.name)
    on_host = HostFiles(tmp_path / "host")
    assert list(on_host.missing(names)) == list(names)
    for name in names:
        (tmp_path / "host" / name).write_bytes((tmp_path / "cache" / "files" / name).read_bytes())
    here = on_host.here(task)
    assert here.weights_path == str(tmp_path / "host" / names[1])
    measured = create_agent(HOST_CPU, {}).measure(here)
    assert measured.status is Status.OK, measured.failure
    assert measured.top1_agreement == 1.0


def test_a_phone_refuses_it(cached: Callable[[str, float], Artifact]) -> None:
    run = object.__new__(program_run.PhonePrograms)
    with pytest.raises(UnsupportedError, match="second file"):
        run.place(task_of(cached("MatMul", 2.0)))


_EXPORT = """
import sys
from pathlib import Path
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.export.request import export_request
from fleetrank.models import onnx_external_weights
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.networks.primer import PRIMER

onnx_external_weights.LARGEST_BYTES = 100
request = ExportRequest(model=resolve(PRIMER), weights=Weights(), format=Format.ONNX)
print(to_json(export_request(request, Path(sys.argv[1]), is_trusted=False)))
"""


@pytest.mark.thorough
@pytest.mark.export
def test_an_exported_network_has_its_weights_beside_it_and_computes_the_same(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-P", "-c", _EXPORT, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    staged = from_json(StagedExport, done.stdout.splitlines()[-1])
    assert staged.weights_path is not None
    assert staged.inputs_path is not None
    assert staged.reference_path is not None
    outputs = tmp_path / "outputs.npz"
    task = InferTask(
        task_id="t",
        artifact_path=str(staged.path),
        artifact_sha256=file_sha256(staged.path),
        execution=EXECUTION,
        inputs_path=str(staged.inputs_path),
        outputs_path=str(outputs),
        is_trusted=True,
    )
    assert create_agent(HOST_CPU, {}).infer(task) is None
    found = compare_files(staged.reference_path, outputs)
    assert found.is_equal, found.reason
