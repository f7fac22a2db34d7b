"""Facts that can differ between two sweeps although their cells are equal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import polars as pl

from fleetrank.foundation.wording import count_of

MUST_BE_EQUAL = ("sample_kind", "origin")
"""If one of these differs, the figures are not comparable: no test is made."""
MAY_DIFFER = (
    "runtime_version", "runtime_settings", "artifact_sha256", "exporter_versions",
    "fleetrank_version", "git_commit", "host", "os", "cpu_model", "logical_cores", "governor",
    "clock_max_mhz", "python_version", "worker_affinity", "niceness", "omp_num_threads",
    "confinement",
)  # fmt: skip
"""Facts that most often explain a slower cell; threads and precision are in the key."""
_SHOWN = 60
"""Maximum letters of a value in a sentence; the rows have the full value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that differs in the second sweep; its values are those of the first cell."""

    fact: str
    value_a: str | None
    value_b: str | None
    n_cells: int

    @property
    def sentence(self) -> str:
        """The difference as a sentence for a note."""
        a, b = (_shown(value) for value in (self.value_a, self.value_b))
        cells = count_of(self.n_cells, "cell")
        return f"Differs in {cells}: {self.fact} was {a}, is {b}."

    def as_json(self) -> dict[str, object]:
        """The difference as JSON values."""
        return asdict(self)


def facts_of() -> list[pl.Expr]:
    """Expressions that give each fact of a group of rows as text, different values joined."""
    return [
        pl.col(name).cast(pl.String).drop_nulls().unique().sort().str.join(" | ").alias(name)
        for name in (*MUST_BE_EQUAL, *MAY_DIFFER)
    ]


def unlike_facts(
    a: Mapping[str, Mapping[str, object]], b: Mapping[str, Mapping[str, object]]
) -> tuple[Difference, ...]:
    """Every fact that differs in a cell of both sides; cell key to facts, as `facts_of` names."""
    common = sorted(a.keys() & b.keys())
    found = []
    for fact in (*MUST_BE_EQUAL, *MAY_DIFFER):
        cells = [key for key in common if a[key][fact] != b[key][fact]]
        if cells:
            first = cells[0]
            found.append(
                Difference(
                    fact=fact,
                    value_a=_text(a[first][fact]),
                    value_b=_text(b[first][fact]),
                    n_cells=len(cells),
                )
            )
    return tuple(found)


def _text(value: object) -> str | None:
    return str(value) if value not in {None, ""} else None


def _shown(value: str | None) -> str:
    if value is None:
        return "not known"
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
