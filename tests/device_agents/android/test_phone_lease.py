from pathlib import Path

import pytest

from fleetrank.device_agents.android.state.phone_lock import phone_lease
from fleetrank.device_agents.errors import TransientError

pytestmark = pytest.mark.slow


def test_a_phone_has_one_user_until_it_is_freed(tmp_path: Path) -> None:
    with phone_lease("a" * 64, folder=tmp_path):
        with (
            pytest.raises(TransientError, match="in use"),
            phone_lease("a" * 64, folder=tmp_path, patience_s=0.0),
        ):
            pass
        with phone_lease("b" * 64, folder=tmp_path):
            pass
    with phone_lease("a" * 64, folder=tmp_path):
        pass
