"""Names from files that would drive a terminal, on a real one."""

import json
import re
from pathlib import Path

import pytest
from command_line import draw_inside, run_command, run_inside

from fleetrank.foundation.checksums import with_checksum
from fleetrank.orchestrator.workspace.workspace import Workspace

EVIL = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202etxt.exe \u2066 \u200b \u200f \u061c \x00 é 東京"
UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
)
OWN_CODES = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K")
"""Colours, hiding the cursor, and redrawing a line: what Rich sends to a terminal by itself."""
ESCAPED = re.compile(r"\\u001b|\\x1b")
"""Python's own form stands where a message shows a text in quotes."""
NOT_REPEATED = {"exclusions"}
"""Places whose message says what is wanted and not what was there."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return Workspace.init(tmp_path / "w").root


def assert_safe(sent: bytes, *, draws: bool = False) -> str:
    text = sent.decode().replace("\r\n", "\n")
    if draws:
        text = OWN_CODES.sub("", text).replace("\r", "")
    assert not UNSAFE.findall(text), UNSAFE.findall(text)[:5]
    return text


def _json(text: str) -> str:
    """Text between quotes for YAML, TOML and JSON alike."""
    return json.dumps(text)


def card(**changes: str) -> str:
    fields = {"family": "standard_cnn", "source": "torchvision", "entry": "resnet18"} | changes
    return "".join(f"{key} = {_json(value)}\n" for key, value in fields.items())


SWEEP = {"name": _json("t"), "models": "[resnet18]", "runtimes": "[onnx]"}


def sweep(**changes: str) -> str:
    return "".join(f"{key}: {value}\n" for key, value in (SWEEP | changes).items())


FILES = {
    "a card's accuracy": (
        "cards/t.toml",
        card(accuracy_source=EVIL) + "accuracy_top1 = 1.0\n",
        (("models", "show", "t"), ("models", "show", "t", "--json")),
    ),
    "a card's tag": (
        "cards/t.toml",
        card(weights_tag=EVIL),
        (("models", "list"), ("models", "list", "--json"), ("models", "show", "t")),
    ),
    "a sweep's model": (
        "sweeps/t.yaml",
        sweep(models=f"[{_json(EVIL)}]"),
        (("sweep", "plan", "t"), ("--debug", "sweep", "plan", "t"), ("-vv", "sweep", "plan", "t")),
    ),
    "a sweep's backend": (
        "sweeps/t.yaml",
        sweep(backends=f"{{onnx: [cpu, {_json(EVIL)}]}}"),
        (("sweep", "plan", "t"), ("sweep", "plan", "t", "--json")),
    ),
    "a device's label": (
        "devices/t.yaml",
        f"name: t\nkind: simulated\nlabels: {{a: {_json(EVIL)}, {_json(EVIL)}: b}}\n",
        (("devices", "list"), ("devices", "list", "--json")),
    ),
    "a name of a file": (
        f"devices/{EVIL.replace(chr(0), '')}.yaml",
        "name: t\nkind: simulated\n",
        (("devices", "list"),),
    ),
    "a record": (
        "results/sweeps/t-20260101T000000-aaaa.json",
        json.dumps(
            with_checksum(
                {
                    "sweep_id": "t-20260101T000000-aaaa",
                    "state": "finished",
                    "git_commit": EVIL,
                    "plan": {"repeats": 1, "n_cells": 1},
                    "command_line": EVIL,
                    "notes": [EVIL],
                }
            )
        ),
        (
            ("results", "list"),
            ("results", "list", "--json"),
            ("sweep", "status"),
            ("sweep", "resume"),
        ),
    ),
    "a record's name": (
        f"results/sweeps/t{EVIL.replace(chr(0), '')}-20260101T000000-aaaa.json",
        "{}",
        (("results", "list"), ("sweep", "status"), ("results", "verify")),
    ),
    "exclusions": (
        "results/exclusions.json",
        json.dumps({"exclusions": [{"reason": EVIL}]}),
        (("results", "list"), ("report", "show", "latency")),
    ),
}


@pytest.mark.parametrize("place", FILES)
def test_nothing_from_a_file_drives_the_terminal(place, workspace) -> None:
    name, content, commands = FILES[place]
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    shown = [assert_safe(draw_inside(workspace, *words), draws=True) for words in commands]
    assert all("Traceback" not in text or "--debug" in str(commands) for text in shown), shown
    # Not left out either: a person sees that something is there.
    assert place in NOT_REPEATED or any(map(ESCAPED.search, shown)), shown


def test_names_typed_by_a_person_are_shown_escaped(workspace) -> None:
    name = EVIL.replace("\x00", "")
    for words in (
        ("sweep", "plan", name),
        ("models", "show", name),
        ("devices", "check", name),
        ("results", "verify", name),
        (name,),
        ("sweep", "plan", "example", f"--{name}"),
        ("--debug", "models", "show", name),
    ):
        text = assert_safe(draw_inside(workspace, *words))
        assert ESCAPED.search(text), (words, text)


@pytest.mark.thorough
def test_what_is_drawn_on_a_terminal_shows_a_device_s_name_escaped(workspace) -> None:
    (workspace / "devices" / "t.yaml").write_text(
        f"name: t\nkind: simulated\noptions: {{device_model: {_json(EVIL)}, tier: edge}}\n"
    )
    (workspace / "sweeps" / "t.yaml").write_text(
        sweep(devices="[t]", repeats="1") + f"description: {_json(EVIL)}\n"
    )
    sent = draw_inside(workspace, "sweep", "run", "t", "--inline")
    # The live display draws.
    assert b"\x1b[" in sent
    assert "1 measured, 0 failed" in assert_safe(sent, draws=True)
    name = EVIL.replace("\x00", "")
    for words in (
        ("query", f"SELECT '{name}' AS \"{name}\""),
        ("query", "SELECT device_model FROM all_measurements"),
        ("query", "SELECT device_model FROM all_measurements", "--format", "csv"),
        ("results", "export"),
    ):
        text = assert_safe(draw_inside(workspace, *words), draws=True)
        assert ESCAPED.search(text), words
    table = draw_inside(workspace, "report", "show", "latency", "--include-simulated")
    assert b"\x1b[1m" in table
    assert_safe(table, draws=True)


def test_a_program_gets_the_same_values_as_before(workspace) -> None:
    """A program reads a pipe: only a process of its own knows that it is one."""
    (workspace / "cards" / "t.toml").write_text(card(weights_tag=EVIL), encoding="utf-8")
    shown = run_command(workspace, "models", "show", "t", "--json").stdout
    assert json.loads(shown)["weights_tag"] == EVIL
    assert not UNSAFE.findall(shown)


def test_a_message_of_several_lines_cannot_pose_as_ours(workspace, capfd) -> None:
    forged = "x\n  -> run this\nfleetrank: all is well"
    (workspace / "cards" / "t.toml").write_text(card(family=forged), encoding="utf-8")
    for words in (("models", "show", forged), ("models", "show", "t")):
        lines = run_inside(workspace, *words, capture=capfd).stderr.splitlines()
        assert sum(line.startswith("fleetrank:") for line in lines) == 1, lines
        assert sum(line.startswith("  -> ") for line in lines) == 1, lines
