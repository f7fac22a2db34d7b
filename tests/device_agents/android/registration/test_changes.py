from fleetrank.device_agents.android.registration.registrar import changes_between
from fleetrank.device_agents.contract.registration import RegisteredDevice, RegistrationData


def registered(*latencies_ns: int) -> RegisteredDevice:
    data = RegistrationData(canary_latency_ns=latencies_ns)
    return RegisteredDevice(options={"serial": "S"}, registration=data)


def test_a_phone_that_repeats_itself_worse_is_reported() -> None:
    changes = changes_between(registered(100, 101), registered(95, 108))
    assert [change.fact for change in changes] == ["canary_spread"]
