"""The test bed itself: what the fault matrix takes for granted about its hosts."""

import psutil
import pytest
from namespace_hosts import HostNetwork, RayCluster, wait_until

pytestmark = pytest.mark.cluster


@pytest.mark.thorough
def test_hosts_share_no_names_processes_or_folders(cluster: RayCluster) -> None:
    left, right = (cluster.network.hosts[name] for name in ("left", "right"))
    assert left.run(["hostname"]).stdout.strip() == "left"
    assert left.processes("raylet")
    assert not set(left.processes()) & set(right.processes())
    left.run(["touch", "/tmp/ray/mark", "/dev/shm/mark"])
    assert right.run(["ls", "/tmp/ray/mark"]).returncode != 0
    assert right.run(["ls", "/dev/shm/mark"]).returncode != 0
    assert left.run(["sh", "-c", "echo $HOME"]).stdout.strip() == str(left.home)


@pytest.mark.thorough
def test_a_cut_host_is_silent_and_speaks_again(cluster: RayCluster) -> None:
    left, right = (cluster.network.hosts[name] for name in ("left", "right"))

    def can_connect() -> bool:
        head = cluster.network.hosts["head"]
        probe = f"exec 3<>/dev/tcp/{head.address}/6379"
        return left.run(["timeout", "1", "bash", "-c", probe]).returncode == 0

    assert can_connect()
    left.cut()
    try:
        assert not can_connect()
        assert right.processes("raylet")
    finally:
        left.restore()
    wait_until(can_connect, "the restored link", 10.0)


@pytest.mark.thorough
def test_a_host_that_is_off_runs_nothing(network: HostNetwork, cluster: RayCluster) -> None:
    host = network.add("spare")
    sleeper = host.start(["sleep", "1000"], log=host.folder / "sleep.log")
    wait_until(lambda: len(host.processes("sleep 1000")) == 1, "the command", 5.0)
    found = host.processes("sleep 1000")
    host.power_off()
    assert sleeper.wait(5) != 0
    assert not psutil.pid_exists(found[0].pid)
    host.power_on()
    assert not host.processes("sleep 1000")
