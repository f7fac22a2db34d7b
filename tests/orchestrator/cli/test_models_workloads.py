"""`models export --workload`: files of language models from the command line."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from wording import has
from world import call_inside

from fleetrank.models.export import __main__ as export
from fleetrank.orchestrator.workspace.workspace import Workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Workspace.init(tmp_path / "w").root


@pytest.mark.slow
def test_a_workload_that_does_not_exist_or_of_no_tokens_is_bad_usage(folder: Path) -> None:
    done = call_inside(folder, folder, "models", "export", "stories260k", "--workload", "decode")
    assert done.returncode == 2
    assert has(done.stderr, "decode@512")
    done = call_inside(folder, folder, "run", "resnet18", "--workload", "decode@64")
    assert (done.returncode, "takes no tokens" in done.stderr) == (2, True)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "parts"),
    [("decode@513", ("512", "decode@513", "513")), ("encode@8", ("prefill", "encode@8"))],
)
def test_a_workload_that_the_model_does_not_answer_is_refused(
    tmp_path: Path, workload: str, parts: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["stories260k", "pt2", "--out", str(tmp_path), "--workload", workload]
    assert export.main(words) == 2
    assert has(capfd.readouterr().err, *parts)


def test_a_plan_counts_models_or_cells_that_are_skipped_for_one_reason(folder: Path) -> None:
    text = """name: t
models: {models}
workloads: [prefill@64, prefill@128]
runtimes: [onnx, torch]
backends: {{onnx: cuda}}
devices: [local-cpu]
"""
    for models, shown in (
        ("[stories260k]", "stories260k (2 cells)"),
        ("[stories260k, stories15m]", "2 models"),
    ):
        (folder / "sweeps/t.yaml").write_text(text.format(models=models))
        done = call_inside(folder, folder, "sweep", "plan", "sweeps/t.yaml")
        assert f"skipped: {shown} on cpu" in done.stdout
        assert "no backend 'cuda'" in done.stdout
