"""Which claims about a rank correlation a number of models supports."""

ENOUGH_MODELS = 100
"""With this many models an estimate near 0.92 is within 0.87 to 0.95."""
_RANGES = {
    10: "for a true rho of 0.97 the estimate is from 0.81 to 1.00, so 0.85 and 0.97 cannot be "
    "separated",
    20: "for a true rho of 0.97 the estimate is from 0.88 to 0.99, for 0.92 from 0.77 to 0.98, "
    "for 0.79 from 0.48 to 0.93",
    50: "for a true rho of 0.97 the estimate is from 0.92 to 0.99, for 0.92 from 0.84 to 0.96, "
    "for 0.79 from 0.65 to 0.88",
}
"""95 % ranges over random subsets of that many models.

Source: subsets of public latency tables with 1,000 models and more (OneProxy, HELP, timm).
"""


def few_models_note(n_models: int) -> tuple[str, ...]:
    """The same with the ranges of estimates, for the explanation of a table."""
    if n_models >= ENOUGH_MODELS:
        return ()
    known = max((n for n in _RANGES if n <= n_models), default=min(_RANGES))
    return (
        f"FEW MODELS: a figure uses at most {n_models}. With {known} models, {_RANGES[known]}. "
        f"About {ENOUGH_MODELS} models are needed to decide whether rho is above 0.9.",
    )
