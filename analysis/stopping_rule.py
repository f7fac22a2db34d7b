"""The questions that a sweep can be measured for, and when it stops."""

import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

MOST_ROUNDS = 20
"""Of a sweep that names none: a difference of 5 % is found at a noise of 5 %."""
FIRST_ROUNDS = 3
"""Two give each model one degree of freedom: at ten models as many decisions are taken, later."""
BUDGET_S = 1200.0
_PRECISION = 4
"""Place of the precision in a platform key."""


class SweepQuestion(StrEnum):
    """What a sweep is to decide about the models of each platform."""

    ORDER = "order"
    """Which of every two models is faster."""
    FASTEST = "fastest"
    """Which model is the fastest."""
    FRONTIER = "frontier"
    """Which models no other beats in both latency and accuracy."""
    NOT_SLOWER = "not_slower"
    """Which models are not slower than the first one by the margin or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """When a sweep stops; stored in each of its rows.

    Attributes:
        margin: the relative difference that is of no interest, above 0.
        first: rounds that every model takes part in, at least 2.
        most: rounds after which it stops in any case.
        budget_s: time of measuring after which no further round begins.
        baseline: the model that `not_slower` compares the others with, else `None`.
        mixes_platforms: all cells of a device are compared, not those of a platform.
    """

    question: SweepQuestion
    margin: float
    first: int
    most: int
    budget_s: float
    baseline: str | None = None
    mixes_platforms: bool = False

    @property
    def bound(self) -> float:
        """The margin as a log ratio."""
        return math.log1p(self.margin)

    def contest(self, platform_key: str, workload: str) -> str:
        """Equal for the cells that are compared with each other."""
        if self.mixes_platforms:
            platform_key = platform_key.split("/", maxsplit=1)[0]
        elif self.question is not SweepQuestion.FRONTIER:  # accuracies are those of one precision
            parts = platform_key.split("/")
            platform_key = "/".join((*parts[:_PRECISION], "*", *parts[_PRECISION + 1 :]))
        return f"{workload} on {platform_key}"

    def __str__(self) -> str:
        """The form in rows: sorted JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Reads the output of `str`; `None` if the text is not one."""
        try:
            content = json.loads(str(text))
            return cls(**content | {"question": SweepQuestion(content["question"])})
        except (ValueError, TypeError, KeyError):
            return None
