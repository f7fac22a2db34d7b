"""What a number of models can and cannot tell about a rank correlation."""

ENOUGH_MODELS = 100
"""From here on an estimate near 0.92 settles within 0.87 to 0.95."""

_RANGES = {
    10: "a true rho of 0.97 comes out anywhere from 0.81 to 1.00, so 0.85 and 0.97 look alike",
    20: "a true rho of 0.97 comes out from 0.88 to 0.99, 0.92 from 0.77 to 0.98, 0.79 from 0.48 "
    "to 0.93",
    50: "a true rho of 0.97 comes out from 0.92 to 0.99, 0.92 from 0.84 to 0.96, 0.79 from 0.65 "
    "to 0.88",
}
"""95 % ranges over random subsets of that many models.

Source: subsets of public latency tables with 1,000 models and more (OneProxy, HELP, timm).
"""


def few_models_note(n_models: int) -> tuple[str, ...]:
    """A warning where `n_models` cannot carry a claim about rho; empty from 100 models on."""
    if n_models >= ENOUGH_MODELS:
        return ()
    known = max((n for n in _RANGES if n <= n_models), default=min(_RANGES))
    return (
        f"FEW MODELS: {n_models} at most behind a figure; with {known}, {_RANGES[known]}. To tell "
        f"whether rho is above 0.9 takes about {ENOUGH_MODELS} models.",
    )
