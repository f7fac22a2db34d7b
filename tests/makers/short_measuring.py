"""`fleetrank` whose measurements end after a moment, where the sweep does not say how long.

Run as a program with the words of a command line. The commands that make their own specification
(`run`, `ab`) have no option for it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy
from fleetrank.orchestrator.identity import RoundRules

PROGRAM = __file__
SHORTER = {
    MeasurePolicy: {
        "min_warmup_s": 0.0, "min_runs": 20, "min_observed_s": 0.0, "max_time_s": 0.1,
        "energy_s": 0.0,
    },
    BlockPolicy: {"block_s": 0.01},
    RoundRules: {"block_s": 0.01},
}  # fmt: skip


def shorten() -> None:
    """Changes the defaults of the measuring protocol in this process; its tasks carry them."""
    for policy, shorter in SHORTER.items():
        policy.__init__.__kwdefaults__.update(shorter)
        for name, value in shorter.items():
            # Pydantic reads the defaults of a sweep's sections here.
            policy.__dataclass_fields__[name].default = value


@contextmanager
def shortened() -> Iterator[None]:
    """The same until the end of the block."""
    fields = [(policy, name) for policy, shorter in SHORTER.items() for name in shorter]
    before = [policy.__dataclass_fields__[name].default for policy, name in fields]
    with ExitStack() as stack:
        for policy in SHORTER:
            stack.enter_context(mock.patch.dict(policy.__init__.__kwdefaults__))
        shorten()
        yield
    for (policy, name), value in zip(fields, before, strict=True):
        policy.__dataclass_fields__[name].default = value


if __name__ == "__main__":
    shorten()
    from fleetrank.orchestrator.cli.main import main

    main()
