"""Who has no token gets a plain answer at once, and nothing else."""

import sys
import time
from pathlib import Path

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


@pytest.mark.thorough
def test_a_raylet_without_the_token_does_not_join(cluster: RayCluster) -> None:
    stranger = cluster.network.add("stranger")
    ray = str(Path(sys.executable).parent / "ray")
    command = ["timeout", "10", ray, "start", f"--address={cluster.address}"]
    label = "--labels=fleetrank-host=stranger"
    joined = stranger.run([*command, label], env={"RAY_AUTH_MODE": "disabled"})
    assert joined.returncode != 0
    assert "stranger" not in cluster.alive()
    stranger.power_off()
