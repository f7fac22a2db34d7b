import errno
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fleetrank.analysis.errors import AnalysisError, NoDataError, QueryError
from fleetrank.device_agents.errors import MissingLibraryError, PermanentError, TransientError
from fleetrank.foundation.registry import UnknownNameError
from fleetrank.models.errors import CardError, ExportError, UntrustedError
from fleetrank.orchestrator.cli import main as cli
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.main import COMMANDS, run, take_shared_options
from fleetrank.orchestrator.errors import (
    NewerSchemaError,
    NothingToDoError,
    OrchestratorError,
    StoreError,
    UsageError,
)

HEAVY = {"ray", "torch", "tensorflow", "onnxruntime", "ai_edge_litert", "scipy"}
OWN = {"orchestrator.progress", "analysis.stored.sweep_record", "analysis.panel.agreement"}
HELP = """
import json, sys
from fleetrank.orchestrator.cli.main import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "loaded": sorted(sys.modules)}))
"""


@pytest.mark.parametrize(
    ("words", "unused", "said"),
    [
        (["--help"], HEAVY | OWN | {"polars", "pydantic"}, COMMANDS),
        (["report", "show"], HEAVY | OWN | {"rich", "yaml"}, ["latency"]),
        (["models", "--help"], HEAVY, ["list"]),
    ],
)
def test_a_command_loads_no_library_that_it_does_not_need(words, unused, said) -> None:
    """How long it takes is timed by `benchmarks/report.py`, beside the import of the others."""
    command = [sys.executable, "-c", HELP, *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    last_line = json.loads(answer.stdout.splitlines()[-1])
    assert last_line["code"] == 0
    assert not {name.removeprefix("fleetrank.") for name in last_line["loaded"]} & unused
    assert all(name in answer.stdout for name in said)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Makes `fleetrank init X` raise what the test wants."""

    def install(error: BaseException) -> None:
        def init(folder: str) -> None:
            raise error

        monkeypatch.setattr("fleetrank.orchestrator.cli.setup_commands.init", init)

    return install


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UsageError, 2), (UnknownNameError, 2), (NothingToDoError, 4), (StoreError, 1),
        (NewerSchemaError, 2), (OrchestratorError, 1), (TransientError, 4), (PermanentError, 2),
        (MissingLibraryError, 4), (CardError, 2), (ExportError, 2), (UntrustedError, 2),
        (NoDataError, 4), (QueryError, 2), (AnalysisError, 2),
    ],
)  # fmt: skip
def test_each_error_has_its_exit_code_message_and_remedy(failing, capsys, kind, code) -> None:
    failing(kind("what happened", "what to do"))
    assert run(["init", "x"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "fleetrank: what happened\n  -> what to do\n"


def test_an_error_cannot_control_the_terminal_or_forge_a_line(failing, capsys) -> None:
    failing(UsageError("a\x1b[2Jb\nfleetrank: done", "c\x9b31m\u202ed"))
    assert run(["init", "x"]) == 2
    err = capsys.readouterr().err
    assert err == "fleetrank: a\\u001b[2Jb\n    fleetrank: done\n  -> c\\u009b31m\\u202ed\n"


def test_a_defect_is_unexpected_and_shows_its_place_only_with_debug(failing, capsys) -> None:
    failing(ZeroDivisionError("oh"))
    assert run(["init", "x"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert run(["init", "x", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: oh" in err


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"), (errno.EDQUOT, "free some space"),
        (errno.EROFS, "read-only mount"), (errno.EACCES, "mode"), (errno.EPERM, "owner"),
        (errno.EFBIG, "ulimit -f"), (errno.ESTALE, "mounted from"),
    ],
)  # fmt: skip
def test_a_disk_that_takes_nothing_is_no_defect(failing, capsys, number, remedy) -> None:
    failing(OSError(number, os.strerror(number), "/w/results/x"))
    assert run(["init", "x"]) == 1
    err = capsys.readouterr().err
    assert "/w/results/x cannot be written" in err
    assert remedy in err
    assert "defect" not in err
    failing(OSError(number, os.strerror(number)))
    assert run(["init", "x"]) == 1
    assert f"{Path.cwd()} cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENAMETOOLONG, "shorter"), (errno.ELOOP, "leads back to itself"),
        (errno.ENOTDIR, "a part of it is a file"), (errno.EISDIR, "this is a folder"),
        (errno.EACCES, "get the permission"),
    ],
)  # fmt: skip
def test_a_path_that_no_file_can_have_is_no_defect(failing, capsys, number, remedy) -> None:
    failing(OSError(number, os.strerror(number), "/some/path"))
    assert run(["init", "x"]) in (1, 2)
    err = capsys.readouterr().err
    assert "/some/path" in err
    assert remedy in err
    assert "bug" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["run", "{}"],
        ["run", "{}.onnx"],
        ["eval", "ppl", "--model", "{}.pte", "--tokenizer", "t.json", "--text", "t.txt"],
        ["eval", "ppl", "--model", "gpt2", "--tokenizer", "{}", "--text", "t.txt"],
        ["eval", "ppl", "--model", "gpt2", "--tokenizer", "t.json", "--text", "{}"],
        ["results", "import", "{}", "--from", "csv", "--map", "map.toml"],
        ["results", "import", "t.csv", "--from", "csv", "--map", "{}"],
        ["results", "import", "{}", "--from", "timm"],
        ["sweep", "plan", "{}"],
        ["sweep", "plan", "{}.yaml"],
    ],
)
def test_a_path_of_300_letters_is_no_defect(words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "map.toml", "t.txt", "t.json", "cluster.yaml"):
        (tmp_path / name).touch()
    arguments = [word.format("a" * 300) for word in words]
    assert run(["--workspace", str(tmp_path), *arguments]) == 2
    err = capsys.readouterr().err
    assert "bug" not in err
    assert "  -> " in err


def test_a_library_that_is_missing_is_named_with_what_installs_it(failing, capsys) -> None:
    failing(ModuleNotFoundError("No module named 'ray'"))
    assert run(["init", "x"]) == 4
    err = capsys.readouterr().err
    assert "'ray'" in err
    assert "pip install" in err


def test_an_interrupt_is_130(failing) -> None:
    failing(KeyboardInterrupt())
    assert run(["init", "x"]) == 130


@pytest.mark.parametrize(
    "arguments",
    [
        ["swep"], ["devices", "lst"], ["init", "--no-such-option", "x"], ["init"],
        ["devices", "list", "--workspace"], ["devices", "list", "--workspace", "/none"],
    ],
)  # fmt: skip
def test_bad_usage_is_2(arguments, capsys) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workspace", "W", "-v", "--debug", "devices", "list"],
        ["devices", "--workspace", "W", "-v", "list", "--debug"],
        ["devices", "list", "--workspace=W", "--debug", "--verbose"],
    ],
)
def test_shared_options_are_taken_before_and_after_the_command(arguments) -> None:
    context, rest = take_shared_options(arguments)
    assert rest == ["devices", "list"]
    assert (context.given_root, context.verbose, context.debug) == (Path("W"), 1, True)


@pytest.mark.parametrize(
    ("arguments", "verbose"),
    [(["x"], 0), (["-v", "x"], 1), (["-vv"], 2), (["-v", "-v"], 2), (["--verbose"], 1)],
)
def test_verbosity_counts(arguments, verbose) -> None:
    assert take_shared_options(arguments)[0].verbose == verbose


def test_after_two_dashes_nothing_is_an_option() -> None:
    assert take_shared_options(["query", "--", "--debug"])[1] == ["query", "--", "--debug"]


def test_a_command_sees_the_workspace_it_was_given(tmp_path, monkeypatch, capsys) -> None:
    assert run(["init", str(tmp_path / "w")]) == 0
    seen = []
    monkeypatch.setattr(
        "fleetrank.orchestrator.cli.setup_commands.init",
        lambda: seen.append(current().workspace.root),
    )
    assert run(["init", "--workspace", str(tmp_path / "w")]) == 0
    assert seen == [tmp_path / "w"]


@pytest.mark.thorough
def test_a_workspace_with_its_own_packages_does_not_shadow_ours(tmp_path) -> None:
    assert run(["init", str(tmp_path)]) == 0
    for name in ("fleetrank", "models", "analysis", "yaml"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('shadowed')")
    answer = subprocess.run(
        [Path(sys.executable).with_name("fleetrank"), "devices", "list", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    assert json.loads(answer.stdout)[0]["kind"] == "cpu"


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_every_command_has_a_help_that_is_not_cut_off(words, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.endswith("...") and "Usage:" not in line]


def test_the_version_is_the_installed_one(capsys) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == metadata.version("fleetrank")


def test_main_ends_the_process_with_the_code(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fleetrank", "swep"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
