"""Files in 16 bits are exported, run, and compared with their fp32 original."""

from dataclasses import replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.networks.primer import PRIMER
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.one_export import ExportTools

OURS = ExportRequest(model=resolve(PRIMER), weights=Weights(), format=Format.ONNX)


def tools_in(folder: Path) -> ExportTools:
    return ExportTools(
        cache=ArtifactCache(folder),
        infer=infer_in_worker,
        emit=lambda _event: None,
        switch=StopSwitch(),
        is_trusted=True,
    )


@pytest.mark.thorough
@pytest.mark.export
def test_files_in_16_bits_compute_nearly_what_their_original_does(tmp_path: Path) -> None:
    requests = [
        replace(OURS, format=format_, precision=precision)
        for format_, precision in (
            (Format.PT2, "fp16"), (Format.PT2, "bf16"), (Format.ONNX, "fp16"),
        )
    ]  # fmt: skip
    exports = build_artifacts(requests, (), tools_in(tmp_path))
    assert exports.failures == {}
    errors = [exports.artifacts[request].max_relative_error for request in requests]
    fp16, bf16, onnx = (error or 0.0 for error in errors)
    assert 0 < fp16 < bf16 < 0.1
    assert 0 < onnx < 0.02


def test_a_precision_that_a_format_lacks_names_those_it_has(tmp_path: Path) -> None:
    request = replace(OURS, precision="bf16")
    (failure,) = build_artifacts([request], (), tools_in(tmp_path)).failures.values()
    assert has(failure.message, "onnx", "'bf16'", "fp32, fp16, int8")
