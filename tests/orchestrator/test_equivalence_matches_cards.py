"""Names in the importers' equivalence table are cards of ours, which it may not import."""

import csv
import tomllib

import pytest

from fleetrank.analysis.importers.release import EQUIVALENCE_TABLE, load_equivalences, named
from fleetrank.models.cards.zoo import load_zoo

SOURCES = sorted(set(tomllib.loads(EQUIVALENCE_TABLE.read_text())) - {"macs"})


@pytest.mark.parametrize("source", SOURCES)
def test_every_declared_name_is_a_card_with_macs(source: str) -> None:
    table = load_equivalences(source)
    zoo = load_zoo()
    assert set(table.equal.values()) <= set(zoo)
    assert set(table.macs) == set(zoo)
    assert not set(table.equal) & set(table.unequal)
    assert len(set(table.equal.values())) == len(table.equal)


def test_timm_names_say_the_size_of_the_card() -> None:
    zoo = load_zoo()
    for name, card in load_equivalences("timm").equal.items():
        assert int(name.partition("@")[2]) == zoo[card].input_size


def test_the_demo_has_the_macs_of_its_source_and_only_of_its_models() -> None:
    """Each name is a model of the demo that is no card, so a misspelt one is found."""
    rows = csv.DictReader(EQUIVALENCE_TABLE.with_name("demo.csv").read_text().splitlines())
    models = {row["model"] for row in rows}
    own = load_equivalences("demo").own_macs
    assert own == load_equivalences("qai-hub").own_macs
    assert set(own) <= models - set(load_equivalences("demo").equal)
    assert len(own) == 30
    filled = named({"flops": None}, "googlenet", load_equivalences("demo"))
    assert (filled["model"], filled["flops"]) == ("demo:googlenet", 2 * 1_498_000_000)
    assert named({"flops": 7}, "googlenet", load_equivalences("demo"))["flops"] == 7
