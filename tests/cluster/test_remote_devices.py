"""Devices that a host of the cluster conducts: a board, and a place of a lab."""

import json
import sys

import pytest
from cluster_driver import ACTOR, Case, is_failure, is_ok
from namespace_hosts import SSHD, HostNetwork, NamespaceHost, make_key, start_sshd, wait_until
from small_lab import SmallLab

pytestmark = pytest.mark.cluster

_LIMIT_S = 90.0
_BOARD = """name: board
kind: board
host: left
options: {{ssh: lab, ssh_config: {config}, python: {python}, max_wait_s: 60.0, max_temp_c: 150.0}}
"""
_RESERVED = """name: sim-left
kind: simulated
host: left
options: {{duration_s: 3.0}}
reserve: {{command: {command}, renew: {renew}, release: {release}, every_s: 0.2}}
"""


@pytest.fixture(scope="module")
def lab(network: HostNetwork) -> NamespaceHost:
    """A machine outside the cluster."""
    return network.add("lab")


@pytest.mark.thorough
@pytest.mark.skipif(not SSHD.exists(), reason="needs openssh-server")
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
    wait_until(lambda: lab.processes("fleetrank-board/code/"), "a worker on the board", 30.0)
    case.harm("board")
    assert left.kill(ACTOR)
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(4)
    assert case.failures() == ["device_lost"]
    case.assert_nothing_left_behind()
    case.note("actor of a board's host is killed", "the repeat failed and was tried again")


@pytest.mark.thorough
@pytest.mark.parametrize("is_taken_away", [True, False], ids=["taken away", "actor killed"])
def test_a_place_of_a_lab_is_lost_in_the_middle(case: Case, is_taken_away: bool) -> None:
    place = SmallLab(case.driver.host.folder / f"place-{is_taken_away}")
    place.folder.mkdir()
    words = {name: json.dumps(place.words(call)) for name, call in SmallLab.CALLS.items()}
    (case.driver.here / "devices" / "sim-left.yaml").write_text(_RESERVED.format(**words))
    case.driver.write_spec(["sim-left"], repeats=2)
    case.start().wait_for(is_ok, _LIMIT_S)
    n_before = place.calls.count("renew")
    wait_until(lambda: place.calls.count("renew") > n_before + 3, "the next repeat", 10.0)
    case.harm("sim-left")
    if is_taken_away:
        place.give_to("ann")
        case.sweep.wait_for(is_failure, 30.0)
        wait_until(lambda: "used by ann" in case.driver.waits("sim-left"), "the reason", 20.0)
        place.free()
    else:
        assert case.host("left").kill(ACTOR)
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(4)
    assert case.failures() == ["device_lost"]
    assert place.user is None
    fault = "a lab takes a place away" if is_taken_away else "actor with a place is killed"
    case.note(fault, "the repeat failed and was tried again")
