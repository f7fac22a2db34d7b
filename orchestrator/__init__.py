"""The conductor: plans sweeps, builds artifacts, dispatches tasks and stores what comes back."""
