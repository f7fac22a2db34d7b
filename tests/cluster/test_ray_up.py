"""The repository's own launcher file, run by `ray up` over ssh against three hosts."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster_driver import FLEETRANK
from namespace_hosts import HostNetwork, NamespaceHost, RayCluster, make_key, start_sshd
from programs import need
from waiting import wait_until

CLUSTER_FILE = Path(__file__).parents[2] / "cluster.yaml"
RAY = str(Path(sys.executable).parent / "ray")

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


@pytest.fixture(scope="module")
def logins(network: HostNetwork) -> Iterator[list[NamespaceHost]]:
    """Three hosts that the first can log in to with a key, as on-premise machines are."""
    need("sshd", "rsync")
    hosts = [network.add(name) for name in ("up1", "up2", "up3")]
    key = hosts[0].home / ".ssh" / "id_ed25519"
    key.parent.mkdir(mode=0o700)
    public_key = make_key(key)
    for host in hosts:
        start_sshd(host, public_key)
    yield hosts
    for host in hosts:
        host.power_off()
        for line in (host.home / ".fleetrank-ray.env").read_text().splitlines():
            if line.startswith("export RAY_TMPDIR=/tmp/fleetrank."):  # of a long home
                shutil.rmtree(line.partition("=")[2])


def test_ray_up_starts_every_host_of_the_file(logins: list[NamespaceHost]) -> None:
    head, *workers = logins
    generated = head.run([RAY, "get-auth-token", "--generate"])
    assert generated.returncode == 0, generated.stderr
    file = yaml.safe_load(CLUSTER_FILE.read_text())
    file["provider"]["head_ip"] = head.address
    file["provider"]["worker_ips"] = [host.address for host in workers]
    file["auth"]["ssh_user"] = "root"
    path = head.home / "cluster.yaml"
    path.write_text(yaml.safe_dump(file, width=10_000))

    up = head.run([RAY, "up", "--yes", "--no-config-cache", str(path)], timeout_s=120)
    assert up.returncode == 0, up.stdout + up.stderr

    cluster = RayCluster(network=HostNetwork(folder=head.folder), head=head)
    head.extra_env["RAY_AUTH_MODE"] = "token"
    names = {host.name for host in logins}
    wait_until(lambda: cluster.alive() == names, "three hosts", 60.0)
    for host in logins:
        raylet = host.processes("raylet/raylet")[0]
        assert raylet.environ()["RAY_worker_niceness"] == "0"
        assert (host.home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0

    status = json.loads(_fleetrank(head, "doctor", "--cluster", "auto", "--json"))
    assert {host["host"] for host in status["hosts"]} == names
    # Hosts inherit the niceness of these tests, which is nothing that a file could change.
    assert [problem for problem in status["problems"] if not os.nice(0)] == []

    before = workers[0].processes("raylet/raylet")[0].pid
    workers[0].kill("raylet/raylet")
    wait_until(
        lambda: (
            [found.pid for found in workers[0].processes("raylet/raylet")] not in ([], [before])
        ),
        "the loop to start Ray again",
        30.0,
    )
    wait_until(lambda: cluster.alive() == names, "three hosts again", 60.0)


def _fleetrank(host: NamespaceHost, *words: str) -> str:
    """The command in a new workspace of the host's user, without a variable that no login has."""
    workspace = host.home / "ws"
    host.run([*FLEETRANK, "init", str(workspace)])
    done = host.run([*FLEETRANK, "--workspace", str(workspace), *words])
    assert done.returncode == 0, done.stderr
    return done.stdout
