from fleetrank.device_agents.android.execution.program_run import mask_of
from fleetrank.device_agents.android.state.phone_cores import Core, parse_cores

TEXT = """0 1803000 1803000 300000 schedutil
1 1803000 1803000 300000 schedutil
2 2802000 2000000 500000 schedutil
3 - - - -
"""


def test_a_core_that_tells_nothing_is_still_a_core() -> None:
    assert parse_cores(TEXT)[3] == Core(number=3)


def test_cores_are_in_the_order_of_their_numbers() -> None:
    text = "10 1 1 1 a\n2 1 1 1 a\n"
    assert [core.number for core in parse_cores(text)] == [2, 10]


def test_the_mask_of_some_cores_is_hexadecimal() -> None:
    assert [mask_of(cpus) for cpus in ((0,), (4, 5, 6, 7), (7,))] == ["1", "f0", "80"]
