"""Phones on an emulated processor, and the real programs for them; skipped without their root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from adb_bench import AdbBench, open_bench
from phone_farm.qemu import ROOT_VARIABLE, android_root

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import read_program
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError

UNTIMED: dict[str, OptionValue] = {"max_drift": 1000.0, "min_canary_tolerance": 1000.0}
"""Options of an emulated phone: its times say nothing, so they make no repeat invalid."""


def tools() -> dict[str, Path]:
    """The programs, by name."""
    try:
        folder = android_root() / "tools"
    except PermanentError as error:
        pytest.skip(f"{error.message}: {error.remedy}")
    return {
        "benchmark_model": folder / "benchmark_model",
        "ort_runner": folder / "ort_runner/arm64-v8a",
    }


@contextmanager
def emulated_phone(server: AdbServer, folder: Path) -> Iterator[tuple[AdbBench, AndroidAgent]]:
    """A Pixel 8, and its agent with both programs."""
    given = tools()
    assert os.environ[ROOT_VARIABLE]
    with open_bench(server, folder, Path.home(), VirtualMode.EMULATED) as bench:
        programs = {name: read_program(name, path) for name, path in given.items()}
        for one in programs.values():
            ProgramStore().add(one)
        agent = AndroidAgent({
            **{name: one.sha256 for name, one in programs.items()},
            "serial": bench.farmed.address,
            "virtual": VirtualMode.EMULATED.value,
            "adb": str(server.adb),
            "adb_server": server.address,
            "settle_s": 0.0,
            **UNTIMED,
        })  # fmt: skip
        yield bench, agent
