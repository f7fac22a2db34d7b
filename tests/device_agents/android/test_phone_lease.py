import subprocess
import sys
from pathlib import Path

import pytest

from fleetrank.device_agents.android.state.identity import phone_lease
from fleetrank.device_agents.errors import TransientError

pytestmark = pytest.mark.slow

HOLD = """
import sys
from pathlib import Path
from fleetrank.device_agents.android.state.identity import phone_lease
with phone_lease("a" * 64, folder=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_phone_has_one_user_until_it_is_freed(tmp_path: Path) -> None:
    with phone_lease("a" * 64, folder=tmp_path):
        with (
            pytest.raises(TransientError, match="in use"),
            phone_lease("a" * 64, folder=tmp_path),
        ):
            pass
        with phone_lease("b" * 64, folder=tmp_path):
            pass
    with phone_lease("a" * 64, folder=tmp_path):
        pass


def test_the_lease_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(TransientError, match=str(holder.pid)),
            phone_lease("a" * 64, folder=tmp_path),
        ):
            pass
        holder.kill()
        holder.wait()
    with phone_lease("a" * 64, folder=tmp_path):
        pass
