"""What a shell gets for the tab key: commands, options and names of the workspace."""

from pathlib import Path

import pytest

from fleetrank.orchestrator.cli.main import COMMANDS, run


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "cluster.yaml", "devices/pixel-8.yaml", "devices/$(touch hacked).yaml", "devices/a b.yaml",
        "cards/own-net.toml", "sweeps/gate.yaml", "results/sweeps/gate-2026-ab.json", "below/x",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def completed(workspace, monkeypatch, capsys):
    def asked(line: str, shell: str = "bash") -> str:
        words = line.split(" ")
        monkeypatch.setenv("_FLEETRANK_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        name = "COMP_WORDS" if shell == "bash" else "_TYPER_COMPLETE_ARGS"
        monkeypatch.setenv(name, line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        assert run([]) == 0
        monkeypatch.delenv(name)
        return capsys.readouterr().out

    return asked


def test_commands_options_and_names_are_completed(completed, workspace, monkeypatch) -> None:
    assert set(COMMANDS) <= set(completed("fleetrank ").split())
    expected = {
        "repo": ["report"],
        "models exp": ["export"],
        "report show transfer --desc": ["--descending"],
        "report compare a --j": ["--json", "--junit"],
        "-v --workspace . report bu": ["build"],
        "devices check pi": ["pixel-8"],
        "run ow": ["own-net"],
        "faster ow": ["own-net"],
        "models show resnet1": ["resnet18"],
        "sweep plan g": ["gate"],
        "sweep status g": ["gate-2026-ab"],
        "report show latency --sweep ga": ["gate-2026-ab"],
        # A name with letters of the shell is never offered.
        "devices remove ": ["pixel-8"],
    }
    found = {line: sorted(completed(f"fleetrank {line}").split()) for line in expected}
    assert found == expected
    monkeypatch.chdir(workspace / "below")
    assert completed("fleetrank sweep run ga").split() == ["gate"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_names(completed, shell: str) -> None:
    assert "pixel-8" in completed("fleetrank devices check pi", shell)
    assert "export" in completed("fleetrank models exp", shell)
