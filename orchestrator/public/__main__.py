"""`python -m fleetrank`: the command line, also where its script is not installed."""

from fleetrank.orchestrator.cli.main import main

if __name__ == "__main__":
    main()
