from dataclasses import replace

from fleetrank.device_agents.android.registration.phone_changes import changes_between
from fleetrank.device_agents.contract.registration import RegisteredDevice, RegistrationData


def registered(*latencies_ns: int) -> RegisteredDevice:
    data = RegistrationData(canary_latency_ns=latencies_ns)
    return RegisteredDevice(options={"serial": "S"}, registration=data)


def test_a_phone_that_repeats_itself_worse_is_reported() -> None:
    changes = changes_between(registered(100, 101), registered(95, 108))
    assert [change.fact for change in changes] == ["canary_spread"]


def test_other_clusters_than_registered_are_reported() -> None:
    before = registered(100, 101)
    now = replace(before.registration, clusters=((4, 5), (0, 1, 2, 3)))
    (change,) = changes_between(before, replace(before, registration=now))
    assert (change.fact, change.registered, change.now) == ("clusters", None, "4,5 + 0,1,2,3")
