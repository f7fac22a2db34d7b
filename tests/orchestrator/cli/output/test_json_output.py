"""Every command prints JSON in a documented shape, or docs/json.md says what to use instead."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_rows import NETS, Place, write_results
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fleetrank.orchestrator.cli.main import COMMANDS, build_app, run

PAGE = Path(__file__).parents[4] / "docs" / "json.md"
_ROW = re.compile(r"^\| `([a-z ]+)` \| (.*?) \|(?: (.*?) ?\|)?$", re.MULTILINE)
TABLE_KEYS = ["title", "notes", "explanation", "rows"]


def _documented() -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    having, _, lacking = PAGE.read_text().partition("have no `--json`")
    shapes = {name: (shape, keys or "") for name, shape, keys in _ROW.findall(having)}
    return shapes, {name: reason for name, reason, _ in _ROW.findall(lacking)}


def _commands() -> Iterator[tuple[str, bool]]:
    def walk(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        if isinstance(command, TyperGroup):
            for name, one in command.commands.items():
                yield from walk(one, (*path, name))
        elif isinstance(command, TyperCommand):
            # The third word of `report show` is the name of a table.
            yield " ".join(path[:2]), any("--json" in one.opts for one in command.params)

    for name in COMMANDS:
        top = get_command(build_app([name]))
        assert isinstance(top, TyperGroup)
        yield from walk(top.commands[name], (name,))


def test_every_command_has_json_or_a_documented_reason() -> None:
    shapes, reasons = _documented()
    found = dict(_commands())
    assert {name for name, has_json in found.items() if has_json} == set(shapes)
    assert {name for name, has_json in found.items() if not has_json} == set(reasons)
    assert {shape for shape, _ in shapes.values()} == {"table", "list", "object"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("json")
    (root / "cluster.yaml").touch()
    for sweep, gflops in (("a", 60.0), ("b", 40.0)):
        place = Place(device="d", tier="cpu", runtime="onnx", gflops=gflops)
        options = {"repeats": 6, "n_samples": 3, "sweep": sweep}
        write_results(root / "results", nets=NETS[:2], places=[place], **options)
    (root / "devices").mkdir()
    (root / "devices" / "y.yaml").write_text("name: y\nkind: simulated\n")
    return root


@pytest.mark.parametrize(
    "words",
    [
        "devices add x --kind simulated", "devices list", "devices remove y", "models list",
        "models show resnet18", "results list", "results verify", "devices check local-cpu",
        "results delete b", "report compare a b",
        "report show latency", "sweep status a",
    ],
)  # fmt: skip
def test_the_documented_shape_is_what_a_command_prints(
    workspace: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    run([*words.split(), "--json", "--workspace", str(workspace)])
    content = json.loads(capsys.readouterr().out)
    shapes, _ = _documented()
    name = max((one for one in shapes if words.startswith(one)), key=len)
    shape, keys = shapes[name]
    assert isinstance(content, list) == (shape == "list")
    (row, *_) = content if isinstance(content, list) else [content]
    if shape == "table":
        assert list(row) == TABLE_KEYS
    elif "the keys of a card" in keys:
        assert {"name", "family", "runtimes", "card_sha256"} <= set(row)
    else:
        # What stands in brackets explains a key.
        assert list(row) == re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", keys))
