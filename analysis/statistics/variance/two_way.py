"""Least squares of an unbalanced table of rows + columns, and traces of its projection."""

from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats

_TOLERANCE = 1e-9
"""Eigenvalues below this share of the largest are 0: the counts are whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoWay:
    """The space of all tables `row effect + column effect`, with observations in their cells.

    Attributes:
        shares: counts over the sum of their row, (n_rows, n_columns).
        rows: observations of each row, above 0, (n_rows,).
        inverse: generalised inverse of the column equations after the rows are eliminated.
        rank: dimension of the space.
    """

    shares: Floats
    rows: Floats
    inverse: Floats
    rank: int

    def squared(self, by_row: Floats, by_column: Floats) -> Floats:
        """Squared lengths of the projections of some vectors of observations.

        From the sum of each vector over each row (n_vectors, n_rows), and over each column
        (n_vectors, n_columns).
        """
        left = by_column - by_row @ self.shares
        inside: Floats = (by_row**2 / self.rows).sum(axis=1)
        total: Floats = inside + ((left @ self.inverse) * left).sum(axis=1)
        return total

    def of_cells(self, weights: Floats) -> float:
        """Sum of `squared` over vectors with the value 1 in one cell and 0 elsewhere.

        `weights` are the squared numbers of observations of these vectors, summed by cell,
        (n_rows, n_columns).
        """
        # With w = e_column - shares[row]: w' inverse w, written out for all cells at once.
        crossed = self.shares @ self.inverse
        own = (crossed * self.shares).sum(axis=1)
        leverage = 1 / self.rows[:, None] + np.diag(self.inverse) - 2 * crossed + own[:, None]
        return float((weights * leverage).sum())


def two_way(counts: Floats) -> TwoWay:
    """The space for a table of counts (n_rows, n_columns), in which no row is empty.

    Source: Searle, Casella and McCulloch 1992, 4.2 (absorbing one factor).
    """
    rows = counts.sum(axis=1)
    shares = counts / rows[:, None]
    reduced = np.diag(counts.sum(axis=0)) - counts.T @ shares
    values, vectors = np.linalg.eigh(reduced)
    kept = values > _TOLERANCE * max(1.0, float(values.max(initial=0.0)))
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return TwoWay(
        shares=shares, rows=rows, inverse=inverse, rank=rows.size + int(np.count_nonzero(kept))
    )
