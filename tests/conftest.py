"""Settings every test shares; needs nothing but pytest, so that a bare machine can load it."""

import importlib.util
import signal
from collections.abc import Iterator

import pytest

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # Shared machines stall for longer than any per-example deadline; chance is not a test result.
    settings.register_profile("fleetrank", deadline=None, derandomize=True)
    settings.load_profile("fleetrank")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a script's background jobs so. Children inherit it, and none would hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_host_lease(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that run side by side, and a sweep beside them, do not wait for one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield
