"""Every command of the documentation is run, or at least understood by the command line."""

import re
from pathlib import Path

import pytest
import recipes
import yaml
from doc_blocks import blocks_of, commands_of, pages_in, spans_of
from doc_workspace import ROOT, TrialGround, make_trial_ground, make_workspace, run_page
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from fleetrank.orchestrator.cli.main import build_app, take_shared_options
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

PAGES = pages_in(ROOT)
RUN = [
    page
    for page in PAGES
    if any(block.is_typed and block.reason is None for block in blocks_of(page.read_text()))
]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> TrialGround:
    return make_trial_ground(tmp_path_factory.mktemp("docs") / "ground")


@pytest.mark.ray
@pytest.mark.parametrize("page", RUN, ids=_name)
def test_what_a_page_says_can_be_typed_from_top_to_bottom(page, ground, tmp_path) -> None:
    run_page(ground, blocks_of(page.read_text()), make_workspace(ground, tmp_path / "w"))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_that_are_not_run_are_understood(page) -> None:
    text = page.read_text()
    for block in blocks_of(text):
        if block.is_typed and block.reason is not None:
            for words in commands_of(block, "fleetrank"):
                parse(words)
            for words in commands_of(block, "make"):
                assert set(words) <= _make_targets()
    for words in spans_of(text):
        parse_named(words)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_no_command_hides_in_a_block_without_a_language(page) -> None:
    for block in blocks_of(page.read_text()):
        is_proof = page == recipes.PAGE and block.language == "sh"
        if not block.is_typed and not is_proof:  # `test_recipes` runs those
            assert not re.search(r"^(\$ )?(fleetrank|make) [a-z]", block.text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_sweep_to_be_saved_is_valid_as_it_stands(page) -> None:
    for block in blocks_of(page.read_text()):
        if block.title is not None and block.title.startswith("sweeps/"):
            SweepSpec.model_validate(yaml.safe_load(block.text))


@pytest.mark.parametrize("words", [["sweep", "run", "x", "--bogus"], ["swep"], ["sweep", "run"]])
def test_a_command_that_does_not_exist_is_noticed(words) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        parse(words)


def parse(words: list[str]) -> None:
    """Reads a command line as `fleetrank` would, and does not run it."""
    _context, rest = take_shared_options(words)
    if rest == ["--help"]:
        return
    command = get_command(build_app(rest))
    context = command.make_context("fleetrank", list(rest))
    while isinstance(command, TyperGroup):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(name, list(rest), parent=context)


def parse_named(words: list[str]) -> None:
    """As `parse`, but a sentence may name a command without what it is given."""
    try:
        parse(words)
    except TyperException as error:
        if type(error).__name__ not in {"MissingParameter", "NoArgsIsHelpError"}:
            raise


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
