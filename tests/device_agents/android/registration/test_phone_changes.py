from dataclasses import replace

from fleetrank.device_agents.android.phone_registration import PhoneRegistrar
from fleetrank.device_agents.contract.kind import RegisteredDevice, RegistrationData
from fleetrank.device_agents.registration_changes import changes_between


def registered(*latencies_ns: int) -> RegisteredDevice:
    data = RegistrationData(canary_latency_ns=latencies_ns)
    return RegisteredDevice(options={"serial": "S"}, registration=data)


def test_a_phone_that_repeats_itself_worse_is_reported() -> None:
    changes = changes_between(PhoneRegistrar({}), registered(100, 101), registered(95, 108))
    assert [change.fact for change in changes] == ["canary_spread"]


def test_other_clusters_than_registered_are_reported() -> None:
    before = registered(100, 101)
    now = replace(before.registration, clusters=((4, 5), (0, 1, 2, 3)))
    (change,) = changes_between(PhoneRegistrar({}), before, replace(before, registration=now))
    assert (change.fact, change.registered, change.now) == ("clusters", None, "4-5 + 0-3")


def test_a_cap_under_load_counts_when_it_is_low() -> None:
    before = registered(100, 101)
    for cap, facts in ((950.0, []), (700.0, ["load_cap_mhz"])):
        old = replace(before, options={**before.options, "load_cap_mhz": 1000.0})
        new = replace(before, options={**before.options, "load_cap_mhz": cap})
        changes = changes_between(PhoneRegistrar({}), old, new)
        assert [change.fact for change in changes] == facts


def test_a_canary_that_became_slower_and_an_option_that_changed_are_reported() -> None:
    before, after = registered(100, 101), registered(130, 131)
    after = replace(after, options={"serial": "S", "benchmark_model": "0"})
    changes = changes_between(PhoneRegistrar({}), before, after)
    assert [change.fact for change in changes] == ["benchmark_model", "canary_latency_ns"]
