"""Facts, conditions, company and clocks: decisions on values."""

import contextlib

import pytest
from fake_gpu import H100, HARDWARE, READING, SLICE, FakeGpuLibrary

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.cuda.agent import free_forgotten, held_clock
from fleetrank.device_agents.cuda.gpu_choice import gpu_facts, sm_count
from fleetrank.device_agents.cuda.gpu_use import count_others, own_process, refuse_company
from fleetrank.device_agents.cuda.gpu_watch import throttle_reasons, with_gpu
from fleetrank.device_agents.cuda.nvml_library import Driver, GpuProcess, Hardware
from fleetrank.device_agents.errors import TransientError, UnfitConditionsError
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.foundation.lease import runtime_folder
from fleetrank.foundation.vocabulary import Tier


def process(pid: int, used_bytes: int | None = None) -> GpuProcess:
    return GpuProcess(pid=pid, name="python", used_bytes=used_bytes)


def test_facts_are_the_gpus_with_the_hosts_processor() -> None:
    host = read_facts()
    facts = gpu_facts(host, H100, HARDWARE, Driver(version="580.1", cuda=(13, 0)))
    assert (facts.device_model, facts.tier, facts.arch) == (H100.name, Tier.GPU, "sm_90")
    assert (facts.memory_bytes, facts.clock_max_mhz) == (HARDWARE.memory_bytes, 1980.0)
    assert facts.cpu_model == host.cpu_model
    extra = dict(facts.extra)
    assert extra["sm_count"] == 132
    assert (extra["driver_version"], extra["cuda_driver_version"]) == ("580.1", "13.0")
    assert (extra["power_limit_w"], extra["pcie"]) == (700.0, "gen 5 x16")
    assert (extra["nvlinks"], extra["has_ecc"]) == (18, True)
    assert H100.uuid not in str(facts)  # a serial number stays in the device file


def test_what_a_gpu_does_not_tell_is_left_out_of_its_facts() -> None:
    facts = gpu_facts(read_facts(), H100, Hardware(), Driver(version=None, cuda=None))
    assert {name for name, _ in facts.extra} == {"is_mig_instance", "uuid_hash"}
    assert facts.memory_bytes is None
    assert sm_count(Hardware(capability=(99, 0), cuda_cores=128)) is None


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (None, None), (0, "none"), (0x1, "none"), (0x2, "none"), (0x10, "none"),
        (0x4, "power_cap"), (0x48, "hw_slowdown,hw_heat"), (0x21, "heat"), (0x80, "power_brake"),
    ],
)  # fmt: skip
def test_only_what_slows_a_gpu_down_is_a_throttle_reason(bits: int | None, words: str) -> None:
    assert throttle_reasons(bits) == words


def test_conditions_keep_the_hosts_load_and_take_the_gpus_clock() -> None:
    host = Conditions(load_1min=0.5, clock_mhz=3000.0, temp_c=90.0, governor="performance")
    seen = with_gpu(host, READING, 2)
    assert (seen.load_1min, seen.clock_mhz, seen.temp_c) == (0.5, 1755.0, 41.0)
    assert (seen.throttle_reasons, seen.throttled_ns, seen.power_mw) == ("none", 7, 120_500.0)
    assert (seen.other_processes, seen.governor) == (2, None)


def test_company_is_refused_by_name_and_an_unknown_list_is_not() -> None:
    with pytest.raises(UnfitConditionsError, match=r"1 other processes .*python \(5\)"):
        refuse_company([process(5)])
    refuse_company([])
    refuse_company(None)


def test_the_own_process_is_told_by_number_or_by_being_new() -> None:
    before = [process(5)]
    assert own_process(before, [process(5), process(8, 99)], pid=8) == process(8, 99)
    # In a container the driver knows this process by another number.
    assert own_process(before, [process(5), process(70, 99)], pid=8) == process(70, 99)
    assert own_process(before, [process(5), process(70), process(71)], pid=8) is None
    assert own_process(before, None, pid=8) is None


def test_a_process_listed_before_is_never_the_own_one_whatever_its_number() -> None:
    # Numbers of the host may be those of this container by chance.
    before = [process(8, 77)]
    assert own_process(before, [process(8, 77)], pid=8) is None
    assert own_process(before, [process(8, 77), process(8, 99)], pid=8) == process(8, 99)
    assert count_others(before, [process(8, 77), process(8, 99)], pid=8, is_open=True) == 1


def test_processes_without_a_number_are_told_by_how_many_there_are() -> None:
    before = [process(0), process(0)]
    assert count_others(before, [process(0)] * 3, pid=8, is_open=True) == 2
    assert count_others([], [process(0)], pid=8, is_open=True) == 0


@pytest.mark.parametrize(
    ("before", "now", "is_open", "count"),
    [
        ([], [8], True, 0), ([5], [5, 8], True, 1), ([5], [5, 70, 71], True, 2),
        ([], [], False, 0), ([5], [5], False, 1), ([5], [5], True, 1),
        ([], [], True, None),  # this process is not listed, so others may not be either
    ],
)  # fmt: skip
def test_others_are_counted_without_the_own_process(
    before: list[int], now: list[int], is_open: bool, count: int | None
) -> None:
    lists = [process(it) for it in before], [process(it) for it in now]
    assert count_others(*lists, pid=8, is_open=is_open) == count


def test_a_list_that_is_not_told_counts_nobody() -> None:
    assert count_others([], None, pid=8, is_open=True) is None


def test_the_server_of_mps_is_no_company_and_its_clients_are() -> None:
    server = GpuProcess(pid=3, name="/usr/bin/nvidia-cuda-mps-server")
    refuse_company([server])
    assert own_process([], [server, process(70)], pid=8) == process(70)
    assert count_others([], [server, process(8)], pid=8, is_open=True) == 0
    with pytest.raises(UnfitConditionsError, match="1 other"):
        refuse_company([server, process(5)])


def test_a_clock_is_held_only_when_asked_and_always_let_go() -> None:
    library = FakeGpuLibrary()
    with held_clock(library, H100, None) as said:
        assert (said, library.calls) == (None, [])
    with held_clock(library, H100, 1410) as said:
        assert said == "locked at 1410 MHz"
        assert list(runtime_folder().glob("clock-*"))
    assert library.calls == ["lock 1410", "unlock"]
    assert not list(runtime_folder().glob("clock-*"))


def test_a_clock_is_let_go_after_an_error_too() -> None:
    library = FakeGpuLibrary()
    with contextlib.suppress(ZeroDivisionError), held_clock(library, H100, 1410):
        _ = 1 / 0
    assert library.calls == ["lock 1410", "unlock"]


def test_a_clock_that_may_not_be_held_is_recorded_as_such() -> None:
    library = FakeGpuLibrary(is_allowed=False)
    with held_clock(library, SLICE, 1410) as said:
        assert said == "not allowed"
    assert library.calls == ["lock 1410"]
    assert not list(runtime_folder().glob("clock-*"))


def test_a_clock_whose_holder_died_is_let_go_by_the_next() -> None:
    library = FakeGpuLibrary()
    with held_clock(library, H100, 1410):
        (note,) = runtime_folder().glob("clock-*")
        assert not free_forgotten(library, H100)  # its holder lives
    note.touch()
    library.calls.clear()
    assert free_forgotten(library, H100)
    assert library.calls == ["unlock"]
    assert not free_forgotten(library, H100)


def test_a_clock_of_a_lost_gpu_stays_noted_until_it_is_back() -> None:
    class Gone(FakeGpuLibrary):
        def unlock_clocks(self, gpu: object) -> bool:
            raise TransientError("lost", "reboot")

    with held_clock(Gone(), H100, 1410):
        pass
    assert free_forgotten(FakeGpuLibrary(), H100)
