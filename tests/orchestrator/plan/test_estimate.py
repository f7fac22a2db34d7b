import pytest

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.networks.primer import primer_request
from fleetrank.orchestrator.plan.estimate import exporting_s

ZOO = load_zoo()


def _requests(format_: Format) -> list[ExportRequest]:
    return [
        ExportRequest(model=resolve(card), weights=Weights(), format=format_)
        for card in ZOO.values()
    ]


def test_exports_that_are_there_cost_nothing() -> None:
    assert exporting_s([]) == 0.0


def test_one_export_takes_what_it_takes_and_many_go_in_pairs() -> None:
    (first, *rest) = _requests(Format.TFLITE)
    one_s = exporting_s([first])
    assert exporting_s([first, *rest]) == pytest.approx(13 * one_s / 2)


def test_a_primer_is_cheaper_than_a_model() -> None:
    for format_ in Format:
        assert 0 < exporting_s([primer_request(format_)]) < exporting_s(_requests(format_)[:1])
