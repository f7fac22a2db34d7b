"""Names in the importers' equivalence table are cards of ours, which it may not import."""

import tomllib

import pytest

from fleetrank.analysis.importers.release import EQUIVALENCE_TABLE, load_equivalences
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
