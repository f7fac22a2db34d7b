"""Every command of the documentation is run, or at least understood by the command line."""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from doc_blocks import (
    RECIPES_PAGE,
    ROOT,
    TrialGround,
    blocks_of,
    commands_of,
    make_trial_ground,
    make_workspace,
    pages_in,
    run_page,
    script_of,
    spans_of,
)
from tiny_onnx import save_tiny_onnx
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command
from world import call_inside

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.orchestrator.cli.main import COMMANDS, build_app, run, take_shared_options
from fleetrank.orchestrator.extras import EXTRA_OF
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

PAGES = pages_in(ROOT)
README = ROOT / "README.md"
NOT_RUN = {
    "installs libraries": "pip install, make setup",
    "measures for minutes": "make sweep",
    "these are the tests": "make test, make test-all",
    "270 MB of weights; `test_published_folder` has small ones": "fleetrank run SmolLM-135M",
    "exports for a minute; `world` measures stories260k": "fleetrank run stories15m",
    "a phone or a board": "fleetrank devices list, fleetrank devices add, fleetrank devices check",
}
OF_OTHER_PROGRAMS = {
    "--across", "--advice", "--dashboard-port", "--energy-s", "--max-worker-port", "--require",
    "--min-worker-port", "--node-ip-address", "--node-manager-port", "--object-manager-port",
    "--ray-client-server-port", "--temp-dir",
}  # fmt: skip


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN = [
    pytest.param(page, id=_name(page))
    for page in PAGES
    if any(block.is_typed and block.reason is None for block in blocks_of(page.read_text()))
]


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> TrialGround:
    return make_trial_ground(tmp_path_factory.mktemp("docs") / "ground")


@pytest.mark.thorough
@pytest.mark.ray
@pytest.mark.parametrize("page", RUN)
def test_what_a_page_says_can_be_typed_from_top_to_bottom(page, ground, tmp_path) -> None:
    workspace = make_workspace(ground, tmp_path / "w", is_measured=page != README)
    said = run_page(ground, blocks_of(page.read_text()), workspace)
    if page == README:
        assert_quoted(said)
        (shown,) = re.findall(r"!\[.* and (slower on \d+ of \d+) others\]", README.read_text())
        assert shown in (workspace / "report.html").read_text()


def assert_quoted(said: str) -> None:
    """What the README quotes was printed; `...` stands for what differs, line ends do not count."""
    for text in (one.text for one in blocks_of(README.read_text()) if one.language == "text"):
        pattern = r"\s+".join(map(re.escape, text.split())).replace(re.escape("..."), ".*?")
        assert re.search(pattern, said), text


def hide_what_is_not_offered(patch: pytest.MonkeyPatch, command: str) -> None:
    """Leaves the libraries of the extras that the README names last before a command."""
    named = re.findall(r"\.\[([a-z,]+)\]", README.read_text().split(command)[0])[-1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    inner = re.findall(r"fleetrank\[([a-z,]+)\]", str([known[extra] for extra in named]))
    for library in (name for name, extra in EXTRA_OF.items() if extra not in {*named, *inner}):
        patch.setitem(sys.modules, library, None)


@pytest.mark.thorough
def test_one_file_is_measured_with_the_extra_beside_it(tmp_path, monkeypatch) -> None:
    hide_what_is_not_offered(monkeypatch, "fleetrank run mine.onnx")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    save_tiny_onnx(tmp_path / "mine.onnx")
    assert call_inside(tmp_path, tmp_path, "run", "mine.onnx").returncode == 0


def test_the_published_part_answers_as_the_readme_quotes(tmp_path, monkeypatch) -> None:
    hide_what_is_not_offered(monkeypatch, "fleetrank results import")
    assert run(["init", str(tmp_path / "w")]) == 0
    said, left = "", {"results", "faster", "predict", "query"}
    blocks = blocks_of(README.read_text())
    for words in (words for block in blocks for words in commands_of(block, "fleetrank")):
        if words[0] in left:
            done = call_inside(tmp_path / "w", tmp_path, *words)
            assert done.returncode == 0, done.stderr
            left.remove(words[0])
            said += done.stdout
    assert_quoted(said)
    assert re.search(r"mobilenet_v3_large +tflite( +[\d.]+){3}", said)


def test_a_command_of_the_readme_that_is_not_run_has_a_reason() -> None:
    blocks = [one for one in blocks_of(README.read_text()) if one.is_typed and one.reason]
    lines = [line for block in blocks for line in script_of(block).splitlines()]
    names = ", ".join(NOT_RUN.values()).split(", ")
    assert [line for line in lines if not line.startswith(tuple(names))] == []
    assert [name for name in names if not any(line.startswith(name) for line in lines)] == []


def test_pages_agree_on_a_fact() -> None:
    guide, text = (ROOT / "docs/install.md").read_text(), " ".join(README.read_text().split())
    sizes = dict(re.findall(r"\| `([a-z,]+)` \| ([\d,]+) \|$", guide, re.MULTILINE))
    stated = re.findall(r"([\d,]+) MB", text)
    assert [sizes[one] for one in ("onnx", "onnx,report", "all")] == stated
    samples = f"{MeasurePolicy().max_samples:,}"
    facts = {"why": samples, "measuring": samples, "devices": "H200", "gpu": "H200"}
    for page, fact in facts.items():
        assert fact in (ROOT / f"docs/{page}.md").read_text(), page


def test_every_command_is_understood(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        text = page.read_text()
        typed = [block for block in blocks_of(text) if block.is_typed]
        for words in (one for block in typed for one in commands_of(block, "fleetrank")):
            with subtests.test(page=_name(page), words=words):
                parse(words)
                assert "median(" not in words[-1] or "platform_key" in words[-1]
        for words in (one for block in typed for one in commands_of(block, "make")):
            with subtests.test(page=_name(page), words=words):
                assert {word for word in words if "=" not in word} <= _make_targets()
        for words in spans_of(text):
            with subtests.test(page=_name(page), words=words):
                parse_named(words)


def test_an_option_that_a_sentence_names_exists() -> None:
    known = {"--help", *OF_OTHER_PROGRAMS}.union(*map(_options, map(_command_for, COMMANDS)))
    named = {
        (_name(page), option)
        for page in PAGES
        for span in re.findall(r"(?<!`)`(--[^`]+)`", page.read_text())
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", span)
    }
    assert [one for one in sorted(named) if one[1] not in known] == []


def test_no_command_hides_in_a_block_without_a_language() -> None:
    hidden = [
        (_name(page), found[0])
        for page in PAGES
        for block in blocks_of(page.read_text())
        # `test_recipes` runs what is proof
        if not block.is_typed and not (page == RECIPES_PAGE and block.language == "sh")
        if (found := re.search(r"^(\$ )?(fleetrank|make) [a-z].*", block.text, re.MULTILINE))
    ]
    assert hidden == []


def test_a_sweep_to_be_saved_is_valid_as_it_stands(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        for block in blocks_of(page.read_text()):
            if block.title is not None and block.title.startswith("sweeps/"):
                with subtests.test(page=_name(page), file=block.title):
                    SweepSpec.model_validate(yaml.safe_load(block.text))


def parse(words: list[str]) -> None:
    """Reads a command line as `fleetrank` would, and does not run it."""
    _context, rest = take_shared_options(words)
    if rest == ["--help"]:
        return
    command = _command_for(next((word for word in rest if not word.startswith("-")), ""))
    context = command.make_context("fleetrank", list(rest))
    while isinstance(command, TyperGroup) and rest:
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(name, list(rest), parent=context)


@cache
def _command_for(subcommand: str) -> TyperGroup:
    command = get_command(build_app([subcommand]))
    assert isinstance(command, TyperGroup)
    return command


def _options(command: TyperCommand | TyperGroup) -> set[str]:
    found = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    inner = command.commands.values() if isinstance(command, TyperGroup) else ()
    return found.union(*map(_options, inner))


def parse_named(words: list[str]) -> None:
    """As `parse`, but a sentence may name a command without what it is given."""
    try:
        parse(words)
    except TyperException as error:
        if type(error).__name__ not in {"MissingParameter", "NoArgsIsHelpError"}:
            raise


@cache
def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
