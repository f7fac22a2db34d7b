"""Settings every test shares; needs nothing but pytest, so that a bare machine can load it."""

import importlib.util

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # Shared machines stall for longer than any per-example deadline; chance is not a test result.
    settings.register_profile("fleetrank", deadline=None, derandomize=True)
    settings.load_profile("fleetrank")
