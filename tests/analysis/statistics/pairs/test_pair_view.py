"""The pair that the page begins with, and how it is drawn."""

import pytest
from wording import has

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.page import templates
from fleetrank.analysis.report.pair_view import pair_view
from fleetrank.analysis.statistics.pairs import faster, main_pair
from fleetrank.analysis.stored.selection import Selection

LATENCIES = {
    "here": [1e6, 1.3e6, 2e6, 9e6],
    "p1": [2e6, 1e6, 3e6, 9e6],
    "p2": [2e6, 1e6, 1.5e6, 9e6],
}


def answer_of(make_grid, latencies=LATENCIES, pair=None):
    session = Session(make_grid(latencies), Selection(source="here"))
    return main_pair(session) if pair is None else faster(session, *pair)


def test_the_pair_that_is_reversed_most_often_matters_most(make_grid) -> None:
    here = answer_of(make_grid).here
    assert (here.model_a, here.model_b) == ("m0", "m1")
    assert answer_of(make_grid, {"here": [1e6, 2e6]}) is None


def test_without_a_reversed_pair_it_is_the_one_with_the_largest_gap(make_grid) -> None:
    here = answer_of(make_grid, {"here": [1e6, 2e6, 4e6], "p1": [1e6, 2e6, 4e6]}).here
    assert (here.model_a, here.model_b) == ("m0", "m2")


def test_a_dot_stands_where_its_ratio_is(make_grid) -> None:
    view = pair_view(answer_of(make_grid, pair=("m0", "m1")))
    by_order = {row.order: row for row in view.open_rows}
    assert view.open_rows[0].order == "here"
    assert by_order["here"].at > view.band_low + view.band_width
    assert by_order["reversed"].at < view.band_low
    assert view.band_low + view.band_width / 2 == pytest.approx(50)
    assert has(view.verdict, "No", "m0", "m1")


def test_a_ratio_far_beyond_the_axis_stays_on_it(make_grid) -> None:
    view = pair_view(answer_of(make_grid, {"here": [1e6, 2e6], "p1": [1e6, 99e6]}, ("m0", "m1")))
    (far,) = (row for row in view.open_rows if row.ratio == "99.00")
    assert far.at == 100


def test_the_template_draws_each_platform_once_and_escapes_names(make_attempts) -> None:
    rows = [
        {"model": f"m{at}", "device": device.replace("p1", "<script>x"), "latency_p50_ns": latency}
        for device, latencies in LATENCIES.items()
        for at, latency in enumerate(latencies)
    ]
    session = Session(make_attempts(rows), Selection(source="here"))
    view = pair_view(main_pair(session))
    macro = templates().from_string(
        '{% from "orders.html.j2" import orders %}{{ orders(pair, pair.open_rows) }}'
    )
    text = macro.render(pair=view)
    assert text.count('class="dot"') == len(LATENCIES)
    assert "<script>" not in text
    assert "&lt;script&gt;x" in text
