"""The agent that a board uses for itself: of its processor, or of one NVIDIA GPU.

Agents are imported only when they are needed: that of the processor needs NumPy, which a board may
not have yet when it is registered.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from fleetrank.device_agents.contract.agent import Agent, DeviceFacts
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.host.topology import read_facts

if TYPE_CHECKING:
    from fleetrank.device_agents.cuda.library import GpuLibrary


def device_facts(gpu: object) -> DeviceFacts:
    """The facts of the processor, or of the GPU with these options of a `cuda` device.

    Raises:
        FleetError: the driver, its binding for Python or the GPU is missing.
    """
    return read_facts() if gpu is None else local_agent(gpu).probe()


def local_agent(gpu: object) -> Agent:
    """An agent whose workers are started from the file that was sent here.

    Args:
        gpu: options of a `cuda` device; `None` for the processor.
    """
    worker = (sys.executable, sys.argv[0], "worker")
    if gpu is None:
        from fleetrank.device_agents.cpu.agent import CpuAgent

        return CpuAgent({}, command=worker)
    from fleetrank.device_agents.cuda.agent import CudaAgent

    options = cast("Mapping[str, OptionValue]", gpu)
    return CudaAgent(options, open_library=_open_nvml, command=worker)


def _open_nvml() -> "GpuLibrary":
    from fleetrank.device_agents.cuda import nvml

    try:
        return nvml.open_nvml()
    except MissingLibraryError as error:
        raise MissingLibraryError(
            error.message, f"on the board: {sys.executable} -m pip install nvidia-ml-py"
        ) from error
