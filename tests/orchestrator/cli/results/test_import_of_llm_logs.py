"""A log of ExecuTorch's language programs, imported as a user does it."""

import pytest

from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.workspace import Workspace

MAPPING = 'model = "mine"\ndevice = "phone"\ntier = "edge"\nprecision = "fp32"\nlicence = "own"\n'


def observed(prompt_tokens: int) -> str:
    return (
        f'PyTorchObserver {{"prompt_tokens":{prompt_tokens},"generated_tokens":10,'
        '"inference_start_ms":0,"prompt_eval_end_ms":50,"first_token_ms":51,'
        '"inference_end_ms":150,"SCALING_FACTOR_UNITS_PER_SECOND":1000}\n'
    )


def test_runs_of_one_length_are_repeats_and_of_another_length_another_cell(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "w")]) == 0
    monkeypatch.chdir(tmp_path / "w")
    workspace = Workspace.find()
    (workspace.root / "run.log").write_text("".join(map(observed, (8, 8, 16))))
    (workspace.root / "run.toml").write_text(MAPPING)
    command = ["results", "import", "--from", "executorch-llm", "run.log", "--map", "run.toml"]
    assert run(command) == 0
    rows = load_measurements(workspace.results).sort("workload", "repeat").collect().to_dicts()
    seen = [(row["workload"], row["repeat"], row["ttft_samples_ns"]) for row in rows]
    assert seen == [
        ("generate@16+10", 0, [51_000_000]),
        ("generate@8+10", 0, [51_000_000]),
        ("generate@8+10", 1, [51_000_000]),
    ]
    capsys.readouterr()
    assert run(["report", "show", "tokens", "--workload", "generate@8+10"]) == 0
    assert "executorch-llm:mine" in capsys.readouterr().out
