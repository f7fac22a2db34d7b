"""How far the processes of a model spread on a platform, and the interval of a figure from that."""

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.interval import shrunk_by
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import Figures
from fleetrank.analysis.panel.panel import positions
from fleetrank.analysis.panel.repeats import MEASURED
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_values import is_noisy
from fleetrank.foundation.vocabulary import Design

Ints = npt.NDArray[np.int64]


def noise_of(session: Session, column: str = "latency_p50_ns") -> Figures:
    """The figure of each model on each platform, and the spread of its processes there.

    (n_models, n_platforms). The spread is drawn to that of the platform's models. Models that took
    turns have that of their sweep; releases with one figure of a model have that between them. A
    platform without any has that of others with the same samples and origin.
    """
    repeats, which = session.repeats, MEASURED.index(column)
    processes = np.log(repeats.processes[which])
    n = np.maximum(np.isfinite(processes).sum(axis=-1), 1)
    squares, degrees = _within(processes)
    is_bare = degrees.sum(axis=0) == 0
    if is_bare.any():
        of_releases = _within(np.log(repeats.sweeps[which]))
        for found, more in zip((squares, degrees), of_releases, strict=True):
            found[:, is_bare] = more[:, is_bare]
    usual, turns = _usual(session), _turns(session)
    variance, freedom = np.full((2, *n.shape), np.nan)
    for at in range(n.shape[1]):
        place = (slice(None), at)
        variance[place], freedom[place] = shrunk_by(
            squares[place], degrees[place], usual[place], turns[place]
        )
    _fill_by_kind(session, (squares, degrees), (variance, freedom))
    panel = session.panel
    values = (panel.latency, panel.memory, panel.energy)[which]
    logs = np.log(np.where(values > 0, values, np.nan))
    return Figures(logs=logs, variance=variance, degrees=freedom, n=n, took_turns=turns > 0)


def _usual(session: Session) -> npt.NDArray[np.bool_]:
    """Cells that may say how much processes usually vary: those that are not noisy themselves."""
    panel = session.panel
    usual = np.ones((len(panel.models), len(panel.keys)), dtype=np.bool_)
    noisy = session.comparable.cells.filter(is_noisy())
    usual[
        positions(panel.models, noisy["identity"]), positions(panel.keys, noisy["platform_key"])
    ] = False
    return usual


def _fill_by_kind(
    session: Session, known: tuple[Floats, Floats], found: tuple[Floats, Floats]
) -> None:
    """Platforms without any repeat get the spread of those with the same samples and origin."""
    kinds = session.panel.platforms.select(pl.concat_str("origin", "sample_kind", separator=" "))
    names = np.array(kinds.to_series().fill_null("").to_list())
    squares, degrees = (one.sum(axis=0) for one in known)
    for name in {*names[degrees == 0].tolist()}:
        mine = names == name
        total = degrees[mine].sum()
        if total > 0:
            lacking = mine & (degrees == 0)
            found[0][:, lacking], found[1][:, lacking] = squares[mine].sum() / total, total


def _turns(session: Session) -> Ints:
    """The number of the sweep whose rounds measured a cell; 0 for cells that took no turns."""
    panel = session.panel
    turns: Ints = np.zeros((len(panel.models), len(panel.keys)), dtype=np.int64)
    cells = session.comparable.cells.filter(pl.col("design") == Design.ROUNDS)
    turns[
        positions(panel.models, cells["identity"]), positions(panel.keys, cells["platform_key"])
    ] = cells["sweep_id"].rank("dense")
    return turns


def _within(logs: Floats) -> tuple[Floats, Floats]:
    """Squares around the mean of each model, and their degrees, (n_models, n_platforms) each."""
    n = np.isfinite(logs).sum(axis=-1)
    known = np.where(np.isfinite(logs), logs, 0.0)
    mean = known.sum(axis=-1) / np.maximum(n, 1)
    squares = np.where(np.isfinite(logs), (logs - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    degrees: Floats = np.maximum(n - 1, 0).astype(np.float64)
    return squares, degrees
