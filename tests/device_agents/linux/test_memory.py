import numpy as np
import pytest

from fleetrank.device_agents.linux.worker_process import (
    Memory,
    growth_bytes,
    parse_status,
    read_memory,
    reset_peak,
)

# Linux 6.18, 2026-11-21
STATUS = "Name:\tpython\nVmPeak:\t  20000 kB\nVmHWM:\t   12292 kB\nVmRSS:\t   11264 kB\n"


def test_status_is_read_in_bytes() -> None:
    assert parse_status(STATUS) == Memory(resident_bytes=11264 * 1024, peak_bytes=12292 * 1024)


@pytest.mark.parametrize("text", ["", "VmRSS: many kB\n", "VmRSS:\t5 MB\n", "xVmRSS:\t5 kB\n"])
def test_what_is_not_there_is_none(text: str) -> None:
    assert parse_status(text) == Memory(resident_bytes=None, peak_bytes=None)


@pytest.mark.slow
def test_the_peak_sees_what_was_freed_and_forgets_it_when_reset() -> None:
    assert reset_peak()
    before = read_memory()
    block = np.ones(8 * 1024 * 1024)  # 64 MiB, touched
    del block
    after = read_memory()
    grown = growth_bytes(before.resident_bytes, after.peak_bytes)
    assert grown is not None
    assert grown > 60 * 1024 * 1024
    reset_peak()
    reset = growth_bytes(before.resident_bytes, read_memory().peak_bytes)
    assert reset is not None
    assert reset < 10 * 1024 * 1024


def test_growth_is_missing_with_either_part_and_never_negative() -> None:
    assert growth_bytes(None, 5) is None
    assert growth_bytes(5, None) is None
    assert growth_bytes(5, 3) == 0
    assert growth_bytes(3, 5) == 2
