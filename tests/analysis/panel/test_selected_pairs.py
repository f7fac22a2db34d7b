"""Directed pairs of a large fleet are a seeded part of them, and the note says so."""

from dataclasses import replace

import numpy as np
import pytest
from fleet_rows import PLACES, write_results
from wording import has

from fleetrank.analysis.panel import selected_pairs
from fleetrank.analysis.panel.selected_pairs import directed_pairs, sampled, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    places = [
        replace(place, device=f"{place.device}-{at}") for place in PLACES[::2] for at in range(10)
    ]
    results = write_results(tmp_path_factory.mktemp("fleet"), places=places, repeats=1, n_samples=2)
    return Session(load_measurements(results), Selection(seed=3))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_pairs, "MAX_DIRECTED_PAIRS", 200)


@pytest.mark.slow
def test_all_pairs_of_a_small_fleet_are_used_without_a_note(session: Session) -> None:
    pairs = directed_pairs(session.panel, session.selection)
    assert len(set(pairs)) == 30 * 29
    assert sampled(session, len(pairs)) == ()
    assert has(unlisted(pairs, session), "870")


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_part_is_drawn_by_the_seed_and_holds_each_pair_once(session: Session) -> None:
    selection = session.selection
    pairs = directed_pairs(session.panel, selection)
    assert pairs == directed_pairs(session.panel, selection)
    assert pairs != directed_pairs(session.panel, replace(selection, seed=4))
    assert 180 <= len(pairs) <= 200
    assert len(set(pairs)) == len(pairs)
    assert all(i != j for i, j in pairs)
    assert has(unlisted(pairs, session), f"{len(pairs)}", "870", "seed 3", "`source=`")


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_every_pair_is_drawn_equally_often(session: Session) -> None:
    seen = np.zeros((30, 30))
    for seed in range(200):
        for pair in directed_pairs(session.panel, replace(session.selection, seed=seed)):
            seen[pair] += 1
    drawn = seen[~np.eye(30, dtype=bool)]
    assert np.diag(seen).sum() == 0
    # A count is binomial with p = 200 / 900; its standard deviation is 5.9.
    assert drawn.mean() == pytest.approx(200 * 200 / 900, rel=0.02)
    assert drawn.std() == pytest.approx(5.9, rel=0.15)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_selection_of_few_pairs_uses_all_of_them(session: Session) -> None:
    selection = replace(session.selection, source="*pixel-7-3*")
    assert len(directed_pairs(session.panel, selection)) == 29
