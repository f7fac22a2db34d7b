"""CONTRIBUTING's recipes work as they stand, and touch no more files than they should."""

from pathlib import Path

import pytest
from daily import daily
from doc_blocks import Copy, Recipe, changed, recipes
from fleet_rows import NETS, PLACES, write_results

from fleetrank.orchestrator.workspace.workspace import Workspace

RECIPES = recipes()
MOST_FILES = {
    "Add a program for phones": 3,
    "Add a measured column": 2,
    "Add a model": 1,
    "Add a language model": 1,
    "Add a statistic": 2,
    "Add a selector": 1,
    "Add a command": 2,
}

DAILY = {"Add a statistic"}
"""Each takes 2 to 5 s of processor time."""


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    made = Copy(tmp_path)
    Workspace.init(made.workspace)
    write_results(made.workspace / "results", nets=NETS[:5], places=PLACES[:2], n_samples=3)
    return made


def test_every_recipe_has_a_number_of_files() -> None:
    assert set(RECIPES) == set(MOST_FILES)


@pytest.mark.parametrize(
    "recipe",
    daily(RECIPES.values(), *(one for one in RECIPES.values() if one.title in DAILY)),
    ids=lambda recipe: recipe.title,
)
def test_a_recipe_works_and_touches_few_files(copy: Copy, recipe: Recipe) -> None:
    assert recipe.proof, "no commands show that it works"
    before = copy.run(recipe.proof)
    assert before.returncode != 0, f"works without the recipe:\n{before.stdout}"
    assert len(copy.follow(recipe)) <= MOST_FILES[recipe.title]
    after = copy.run(recipe.proof)
    assert after.returncode == 0, after.stdout


def test_a_change_is_applied_at_its_one_place() -> None:
    assert changed("a\nb\nc\n", " a\n+new\n b\n@@\n-c\n") == "a\nnew\nb\n"
    with pytest.raises(AssertionError):
        changed("a\na\n", " a\n+new\n")
    with pytest.raises(AssertionError):
        changed("a\n", " b\n+new\n")
