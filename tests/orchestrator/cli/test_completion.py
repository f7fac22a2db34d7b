"""The tab key in real shells: commands, options and names of the workspace, without Python."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND
from typed_in_zsh import typed_in_zsh

from fleetrank.orchestrator.cli.completion import Shell
from fleetrank.orchestrator.cli.main import COMMANDS, run

_COMPLETE = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$(({count} - 1))
_fleetrank
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("completed")
    (root / "cluster.yaml").touch()
    for name in (
        "devices/pixel-8.yaml", "devices/$(touch hacked).yaml", "devices/a b.yaml",
        "cards/own-net.toml", "sweeps/gate.yaml", "results/sweeps/gate-2026-ab.json", "below/x",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[Shell, Path]:
    folder = tmp_path_factory.mktemp("script")
    for shell in Shell:
        done = subprocess.run(
            [COMMAND, "--show-completion", shell], capture_output=True, check=True, text=True
        )  # fmt: skip
        (folder / shell).write_text(done.stdout)
    return {shell: folder / shell for shell in Shell}


@pytest.fixture(scope="module")
def script(scripts: dict[Shell, Path]) -> Path:
    return scripts[Shell.BASH]


def completed(script: Path, folder: Path, *words: str) -> list[str]:
    text = _COMPLETE.format(
        script=shlex.quote(str(script)),
        words=" ".join(map(shlex.quote, ("fleetrank", *words))),
        count=len(words) + 1,
    )
    # Without a search path bash cannot start another program, such as Python.
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", text], cwd=folder, env={**os.environ, "PATH": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options_are_completed(script: Path, workspace: Path) -> None:
    assert set(COMMANDS) <= set(completed(script, workspace, ""))
    assert completed(script, workspace, "repo") == ["report"]
    assert completed(script, workspace, "models", "pru") == ["prune"]
    assert completed(script, workspace, "report", "show", "--desc") == ["--descending"]
    assert "--junit" in completed(script, workspace, "report", "compare", "a", "--j")
    assert completed(script, workspace, "-v", "--workspace", ".", "report", "bu") == ["build"]


def test_names_of_the_workspace_are_completed(script: Path, workspace: Path) -> None:
    assert completed(script, workspace, "devices", "show", "pi") == ["pixel-8"]
    assert completed(script, workspace, "run", "ow") == ["own-net"]
    assert "resnet18" in completed(script, workspace, "models", "show", "res")
    assert completed(script, workspace, "sweep", "plan", "g") == ["gate"]
    assert completed(script, workspace, "sweep", "status", "g") == ["gate-2026-ab"]
    assert completed(script, workspace, "report", "show", "cells", "--sweep", "") == [
        "gate-2026-ab"
    ]
    assert completed(script, workspace / "below", "sweep", "run", "ga") == ["gate"]


def test_a_name_of_a_file_is_never_executed(script: Path, workspace: Path) -> None:
    found = completed(script, workspace, "devices", "remove", "")
    assert "pixel-8" in found
    assert not any("hacked" in name for name in found)
    assert not (workspace / "hacked").exists()


COMPLETED = {
    "fleetrank repo": "report",
    "fleetrank models pru": "prune",
    "fleetrank report show --desc": "--descending",
    "fleetrank devices show pi": "pixel-8",
    "fleetrank run ow": "own-net",
    "fleetrank sweep plan g": "gate",
    "fleetrank -v --workspace . report bu": "build",
    "fleetrank report show cells --sweep ga": "gate-2026-ab",
}


def test_zsh_completes_what_is_typed(scripts: dict[Shell, Path], workspace: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    for line, found in typed_in_zsh(scripts[Shell.ZSH], workspace, COMPLETED).items():
        assert found == f"{line.rpartition(' ')[0]} {COMPLETED[line]} "


def test_fish_completes_what_is_typed(scripts: dict[Shell, Path], workspace: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")

    def asked(line: str, folder: Path = workspace) -> list[str]:
        script = shlex.quote(str(scripts[Shell.FISH]))
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]

    assert {line: asked(line) for line in COMPLETED} == {
        line: [word] for line, word in COMPLETED.items()
    }
    assert asked("fleetrank sweep run ga", workspace / "below") == ["gate"]
    # Names after a command, and not the commands beside it; no name with other letters.
    offered = asked("fleetrank devices show ")
    assert {"pixel-8", "local-cpu"} <= set(offered)
    assert not {"check", "add", "a b", "$(touch hacked)"} & set(offered)
    assert not (workspace / "hacked").exists()


@pytest.mark.parametrize("shell", list(Shell))
def test_every_shell_has_a_script_with_every_command(
    capsys: pytest.CaptureFixture[str], shell: Shell
) -> None:
    assert run(["--show-completion", shell.value]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    if (program := shutil.which(shell.value)) is None:
        return
    checked = subprocess.run(
        [program, "-n"], check=False, input=text, text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr
