"""The pair of models that the page begins with."""

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pairs import main_pair
from fleetrank.analysis.stored.selection import Selection

LATENCIES = {
    "here": [1e6, 1.3e6, 2e6, 9e6],
    "p1": [2e6, 1e6, 3e6, 9e6],
    "p2": [2e6, 1e6, 1.5e6, 9e6],
}


def answer_of(make_grid, latencies):
    return main_pair(Session(make_grid(latencies), Selection(source="here")))


def test_the_pair_that_is_reversed_most_often_matters_most(make_grid) -> None:
    here = answer_of(make_grid, LATENCIES).here
    assert (here.model_a, here.model_b) == ("m0", "m1")
    assert answer_of(make_grid, {"here": [1e6, 2e6]}) is None
    published = {name: {"origin": "imported"} for name in LATENCIES}
    grid = make_grid({"mine": [1e6], **LATENCIES}, **published)
    assert main_pair(Session(grid, Selection())).here.model_b == "m1"


def test_without_a_reversed_pair_it_is_the_one_with_the_largest_gap(make_grid) -> None:
    here = answer_of(make_grid, {"here": [1e6, 2e6, 4e6], "p1": [1e6, 2e6, 4e6]}).here
    assert (here.model_a, here.model_b) == ("m0", "m2")
