"""`fleetrank` whose measurements end after a moment, where the sweep does not say how long.

Run as a program with the words of a command line. The commands that make their own specification
(`run`, `ab`, `profile`) have no option for it.
"""

from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy

PROGRAM = __file__


def shorten() -> None:
    """Changes the defaults of the measuring protocol in this process; its tasks carry them."""
    MeasurePolicy.__init__.__kwdefaults__.update(
        min_warmup_s=0.0, min_runs=20, min_observed_s=0.0, max_time_s=0.5, energy_s=0.0
    )
    BlockPolicy.__init__.__kwdefaults__.update(block_s=0.01)


if __name__ == "__main__":
    shorten()
    from fleetrank.orchestrator.cli.main import main

    main()
