"""`python -m fleetrank`: the command line, also if its script is not installed."""

from fleetrank.orchestrator.cli.main import main

if __name__ == "__main__":
    main()
