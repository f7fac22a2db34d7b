"""Who has no token gets a plain answer at once, and nothing else."""

import time

import pytest
from cluster_driver import FLEETRANK
from namespace_hosts import RayCluster

pytestmark = pytest.mark.cluster

_LIMIT_S = 30.0
"""2 to 5 s on an idle machine; Ray left to itself takes longer than this, and says so in lines."""


@pytest.mark.parametrize("token", [None, "0" * 64], ids=["none", "wrong"])
def test_a_driver_without_the_token_is_told_so(cluster: RayCluster, token: str | None) -> None:
    host = cluster.network.hosts["left"]
    home = host.folder / f"stranger-{token}"
    (home / ".ray").mkdir(parents=True)
    if token is not None:
        (home / ".ray" / "auth_token").write_text(token)
    workspace = home / "ws"
    env = {"HOME": str(home)}
    assert host.run([*FLEETRANK, "init", str(workspace)], env=env).returncode == 0
    began_s = time.monotonic()
    words = ["sweep", "run", "example", "--cluster", cluster.address]
    done = host.run([*FLEETRANK, "--workspace", str(workspace), *words], env=env, timeout_s=60)
    assert done.returncode == 2, done.stderr
    assert "needs a token" in done.stderr
    assert len(done.stderr.splitlines()) < 5
    assert time.monotonic() - began_s < _LIMIT_S
