"""Which model, weights and device an evaluation means."""

from pathlib import Path

from onnx import TensorProto, helper

from fleetrank.foundation.vocabulary import Runtime, WeightsKind
from fleetrank.orchestrator.evaluation.subject import Where, find_subject
from fleetrank.orchestrator.workspace.workspace import Workspace


def test_a_new_file_is_found_by_its_first_evaluation(tmp_path: Path) -> None:
    workspace = Workspace.init(tmp_path / "w")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "g", [value], [])).SerializeToString())
    subject = find_subject(workspace, Where(model=str(path)))
    assert subject.model.card.entry == str(path)
    assert (subject.runtime, subject.weights.kind) == (Runtime.ONNX, WeightsKind.EMBEDDED)
