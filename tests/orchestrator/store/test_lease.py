import fcntl
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.store.results import sweep_lease

HOLD = """
import sys, time
from pathlib import Path
from fleetrank.orchestrator.store.results import sweep_lease
with sweep_lease(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_second_driver_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "sweeps" / "s.lease"
    driver = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE)
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=str(driver.pid)), sweep_lease(path):
            pass
    finally:
        driver.kill()
        driver.communicate()
    with sweep_lease(path):
        pass


def test_a_lease_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with sweep_lease(tmp_path / "s.lease"):
            pass


@pytest.mark.slow
def test_somebody_who_only_looks_does_not_keep_a_driver_out(tmp_path: Path) -> None:
    path = tmp_path / "s.lease"
    looking = path.open("w+b")
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = Timer(0.2, looking.close)
    timer.start()
    with sweep_lease(path):
        assert looking.closed
    timer.join()
