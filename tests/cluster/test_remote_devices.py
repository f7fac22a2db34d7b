"""Devices that a host of the cluster conducts, and what happens on their way and in their lab."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import bad_network
import pytest
from adb_bench import PID, TINY_TFLITE, adb_of_the_wheel, given_stand_ins, keep_canary, leftovers
from cluster_driver import ACTOR, FLEETRANK, Case, ClusterDriver, is_failure, is_ok
from namespace_hosts import HostNetwork, HostProcess, NamespaceHost, make_key, start_sshd
from waiting import wait_until

pytestmark = pytest.mark.cluster

_LIMIT_S = 90.0
_DELAY_S = 0.025
"""Each way: a lab in another town."""
_BOARD = """name: board
kind: board
host: left
options: {{ssh: lab, ssh_config: {config}, python: {python}, max_wait_s: 60.0, max_temp_c: 150.0}}
"""


@pytest.fixture(scope="module")
def lab(network: HostNetwork) -> NamespaceHost:
    """A machine outside the cluster: it has an adb server for its network, and a virtual phone."""
    adb = adb_of_the_wheel()
    host = network.add("lab")
    host.extra_env |= {"ADB_LIBUSB": "0", "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554"}
    host.start([str(adb), "-a", "nodaemon", "server"], log=host.folder / "adb.log")
    wait_until(lambda: host.run([str(adb), "devices"]).returncode == 0, "the adb server", 20.0)
    log = host.folder / "phones.log"
    words = [sys.executable, "-m", "phone_farm", "--folder", str(host.home / "phones")]
    path = [str(Path(__file__).parents[1]), *filter(None, [host.env.get("PYTHONPATH")])]
    host.start(words, log=log, env={"PYTHONPATH": os.pathsep.join(path)})
    wait_until(lambda: "Ctrl-C" in log.read_text(), "the virtual phone", 30.0)
    return host


@pytest.fixture
def tunnel(case: Case, lab: NamespaceHost) -> Iterator["Tunnel"]:
    opened = Tunnel(case.host("left"), lab)
    yield opened
    opened.close()


class Tunnel:
    """Leads from a port of a host to the adb server of the lab."""

    address = "127.0.0.1:15037"

    def __init__(self, host: NamespaceHost, lab: NamespaceHost) -> None:
        self._host = host
        to = [lab.address, "5037", str(_DELAY_S)]
        self._command = [sys.executable, bad_network.__file__, self.address.split(":")[1], *to]
        self._running: HostProcess
        self.open()

    def open(self) -> None:
        self._running = self._host.start(self._command, log=self._host.folder / "tunnel.log")

    def close(self) -> None:
        if self._running.is_running:
            self._running.kill()


def _register(driver: ClusterDriver, host: NamespaceHost, adb_server: str) -> None:
    """Finds the phone from the host that will conduct it, and copies its file to the driver."""
    bench = ClusterDriver(host=host, address="", root=host.home / f"bench-{driver.root.name}")
    assert host.run([*FLEETRANK, "init", str(bench.root)]).returncode == 0
    keep_canary(bench.here / "artifacts")
    keep_canary(driver.here / "artifacts")
    host.extra_env["ADB_SERVER_SOCKET"] = f"tcp:{adb_server}"
    (seen,) = json.loads(bench.run("devices", "list", "--found", "--json"))
    del host.extra_env["ADB_SERVER_SOCKET"]
    advice = shlex.split(seen["what_to_do"])
    tools = [f"--tool={name}={path}" for name, path in given_stand_ins().items()]
    options = ("--option=settle_s=0", "--option=poll_s=0.1")
    more = (*tools, *options, "--name", "phone", "--host", host.name)
    bench.run(*advice[1:], *more)
    text = (bench.here / "devices" / "phone.yaml").read_text()
    (driver.here / "devices" / "phone.yaml").write_text(text)


def _use_tflite(workspace: Path) -> None:
    """The phone of the lab has a program for files of TFLite only."""
    (workspace / "m.tflite").write_bytes(TINY_TFLITE.read_bytes())
    for card in (workspace / "cards").iterdir():
        card.write_text(card.read_text().replace("m.onnx", "m.tflite"))
    spec = workspace / "sweeps" / "t.yaml"
    spec.write_text(spec.read_text().replace("[onnx]", "[tflite]"))


def _phone(lab: NamespaceHost) -> Path:
    """The files of the virtual phone, whose programs from now on take the time that they say."""
    (folder,) = (lab.home / "phones").iterdir()
    (folder / ".phone/real_time").write_text("1")
    return folder


@pytest.mark.thorough
def test_a_tunnel_to_a_phone_breaks_and_returns(
    case: Case, lab: NamespaceHost, tunnel: Tunnel
) -> None:
    phone = _phone(lab)
    _register(case.driver, case.host("left"), tunnel.address)
    case.driver.write_spec(["phone"], repeats=2, max_time_s=5.0)
    _use_tflite(case.driver.here)
    case.start().wait_for(is_ok, _LIMIT_S)
    # Later than the program: a cut while the phone is tidied up costs no attempt.
    wait_until((phone / PID).exists, "the program on the phone", 30.0)
    case.harm("phone")
    tunnel.close()
    case.sweep.wait_for(is_failure, _LIMIT_S)
    wait_until(lambda: "does not answer" in case.driver.waits("phone"), "the reason", 30.0)
    tunnel.open()
    assert case.sweep.finish(2 * _LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(4)
    assert case.failures() == ["device_lost"]
    assert leftovers(phone) == []
    case.note("a tunnel to a phone breaks and returns", "the phone was waited for")


@pytest.mark.thorough
def test_the_host_of_a_board_loses_its_actor(case: Case, lab: NamespaceHost) -> None:
    left = case.host("left")
    start_sshd(lab, make_key(left.folder / "board_key"))
    config = left.folder / "ssh_config"
    config.write_text(
        f"Host lab\n  IdentityFile {left.folder}/board_key\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile {left.folder}/known_hosts\n"
    )
    text = _BOARD.format(config=config, python=sys.executable)
    (case.driver.here / "devices" / "board.yaml").write_text(text)
    case.driver.write_spec(["board"], repeats=2, max_time_s=2.0)
    case.start().wait_for(is_ok, _LIMIT_S)
    wait_until(lambda: lab.processes("__main__.py worker"), "a worker on the board", 30.0)
    case.harm("board")
    assert left.kill(ACTOR)
    case.recovers(
        4,
        "actor of a board's host is killed",
        "the two repeats of a round failed and were tried again",
        failures=["device_lost"] * 2,
    )
