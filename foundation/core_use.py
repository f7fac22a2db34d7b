"""How processes that run at the same time share the CPUs of their host."""

from fleetrank.foundation.vocabulary import Words


class CoreUse(Words):
    """The words that rows store."""

    OWN = "own"
    """Each process has cores that no other one uses."""
    SIBLINGS = "siblings"
    """Each has its own logical CPUs, but some of them are hardware threads of one core."""
    SHARED = "shared"
    """There are fewer CPUs than threads: all processes use all of them."""
    FREE = "free"
    """No process is pinned; the system places them."""
