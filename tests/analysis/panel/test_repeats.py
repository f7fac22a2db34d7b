"""The sweeps of a platform stand side by side: one layer is one sweep, for every model."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import pytest

from fleetrank.analysis.arrays.reliability import retest_reliability
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection

MODELS = [f"m{i}" for i in range(7)]


def _rows(sweep: str, hour: int, latencies: Mapping[str, float]) -> list[dict[str, object]]:
    return [
        {"sweep_id": sweep, "model": model, "latency_p50_ns": value, "started_utc": hour}
        for model, value in latencies.items()
    ]


@pytest.fixture
def sweeps_of(make_attempts: Callable[..., pl.LazyFrame]) -> Callable[..., np.ndarray]:
    def make(rows: list[dict[str, object]]) -> np.ndarray:
        return Session(make_attempts(rows), Selection()).repeats.sweeps[0, :, 0, :]

    return make


@pytest.mark.slow
def test_a_model_that_one_release_lacks_does_not_move_into_its_layer(sweeps_of) -> None:
    old = {model: float(10 + i) for i, model in enumerate(MODELS)}
    new = {model: float(90 - i) for i, model in enumerate(MODELS)}
    del old["m0"]
    layers = sweeps_of(_rows("s1", 0, old) + _rows("s2", 1, new))
    assert np.isnan(layers[0, 0])
    assert layers[:, 1].tolist() == list(new.values())
    assert layers[1:, 0].tolist() == list(old.values())
    assert retest_reliability(np.log(layers))[0] == pytest.approx(-1.0)


@pytest.mark.slow
def test_the_layers_of_a_platform_do_not_depend_on_another_platforms_sweeps(
    make_attempts,
) -> None:
    values = {model: float(10 + i) for i, model in enumerate(MODELS)}
    elsewhere = [row | {"device": "d2"} for row in _rows("s0", 0, values)]
    session = Session(make_attempts(elsewhere + _rows("s1", 1, values)), Selection())
    assert session.repeats.sweeps.shape[-1] == 1


@pytest.mark.slow
def test_a_job_that_three_releases_carry_is_one_measurement(sweeps_of) -> None:
    """Without this, three releases with the same jobs had a ceiling of exactly 1."""
    rows = [
        row
        | {
            "source": "qai-hub",
            "origin": "imported",
            "runtime_settings": f'{{"job_id":"j-{row["model"]}"}}',
        }
        for number in range(3)
        for row in _rows(f"s{number}", number, {model: 1.0 + i for i, model in enumerate(MODELS)})
    ]
    layers = sweeps_of(rows)
    assert np.isfinite(layers).sum(axis=1).tolist() == [1] * len(MODELS)
    assert np.isnan(retest_reliability(np.log(layers))[0])


@pytest.mark.slow
def test_a_file_that_is_imported_again_is_one_measurement(sweeps_of) -> None:
    """For example with facts about its models; the newer import counts."""
    rows = [
        row
        | {
            "source": "lab",
            "origin": "imported",
            "source_ref": f"lab.csv sha256:0; facts models.csv sha256:{number}",
        }
        for number in range(2)
        for row in _rows(
            f"s{number}", number, {model: 1.0 + i + number for i, model in enumerate(MODELS)}
        )
    ]
    layers = sweeps_of(rows)
    assert np.nanmax(layers, axis=1).tolist() == [2.0 + i for i in range(len(MODELS))]
    assert np.isnan(retest_reliability(np.log(layers))[0])


@pytest.mark.slow
def test_jobs_that_were_run_again_are_measurements_of_their_own(sweeps_of) -> None:
    rows = [
        row
        | {
            "source": "qai-hub",
            "origin": "imported",
            "runtime_settings": f'{{"job_id":"j-{row["model"]}-{number}"}}',
        }
        for number in range(2)
        for row in _rows(f"s{number}", number, {model: 1.0 + i for i, model in enumerate(MODELS)})
    ]
    assert retest_reliability(np.log(sweeps_of(rows)))[0] == pytest.approx(1.0)
