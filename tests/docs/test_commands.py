"""Every command of the documentation is run, or at least understood by the command line."""

import re
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
    spans_of,
)
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from fleetrank.orchestrator.cli.main import build_app, take_shared_options
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

PAGES = pages_in(ROOT)


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
    run_page(ground, blocks_of(page.read_text()), make_workspace(ground, tmp_path / "w"))


def test_every_command_is_understood(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        text = page.read_text()
        typed = [block for block in blocks_of(text) if block.is_typed]
        for words in (one for block in typed for one in commands_of(block, "fleetrank")):
            with subtests.test(page=_name(page), words=words):
                parse(words)
        for words in (one for block in typed for one in commands_of(block, "make")):
            with subtests.test(page=_name(page), words=words):
                assert {word for word in words if "=" not in word} <= _make_targets()
        for words in spans_of(text):
            with subtests.test(page=_name(page), words=words):
                parse_named(words)


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


@pytest.mark.parametrize("words", [["sweep", "run", "x", "--bogus"], ["swep"], ["sweep", "run"]])
def test_a_command_that_does_not_exist_is_noticed(words) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        parse(words)


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
