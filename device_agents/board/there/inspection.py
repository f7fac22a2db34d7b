"""What a board says about itself at its registration."""

import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

from fleetrank.device_agents.board.board_state import (
    BoardOptions,
    parse_clusters,
    parse_model,
    parse_os,
    parse_soc,
    parse_state,
)
from fleetrank.device_agents.board.there.judged_agent import device_facts
from fleetrank.device_agents.board.there.readings import (
    read_facts_text,
    read_identity,
    read_state_text,
)
from fleetrank.device_agents.contract.agent import Cluster, DeviceFacts
from fleetrank.foundation.vocabulary import Runtime

_IMPORT = """
import importlib, importlib.metadata, sys
importlib.import_module(sys.argv[1])
print("\\n" + importlib.metadata.version(sys.argv[2]))
"""
_IMPORT_LIMIT_S = 120.0
"""PyTorch needs half a minute for its first import from a memory card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardProbe:
    """A board that answered.

    Attributes:
        host: its name for ssh.
        facts: of its processor, as `linux.conditions` reads them there, or of its GPU.
        identity: hash of its serial number; `None` if it has none.
        model: its own name; `None` if it has none.
        clusters: as `board_state.parse_clusters`.
        caps_mhz: as of `BoardState`.
        power_mode: of a Jetson.
        platform: of its Python, such as `linux-aarch64`; the wheels must match it.
        versions: of NumPy and of each runtime that can be imported, by name.
        problems: why another one cannot be imported, with the last line of the error.
        clock_s: its clock, in seconds since 1970.
    """

    host: str
    facts: DeviceFacts
    identity: str | None
    model: str | None
    soc: str | None
    os: str | None
    libc: str
    python: str
    platform: str
    cpus: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    caps_mhz: tuple[float, ...]
    power_mode: str | None
    versions: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str], ...]
    clock_s: int

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that can be used, sorted."""
        return tuple(sorted(set(dict(self.versions)) & set(Runtime)))


def inspect_board(options: BoardOptions, libraries: Iterable[tuple[str, str, str]]) -> BoardProbe:
    """Inspects the board.

    Args:
        options: of its device.
        libraries: name, module and distribution of each that is tried.
    """
    text = {**read_facts_text(), **read_state_text()}
    state, usable = parse_state(text), tuple(sorted(os.sched_getaffinity(0)))
    found = {name: _version(*library) for name, *library in libraries}
    return BoardProbe(
        host=options.ssh,
        facts=device_facts(options.gpu_options),
        identity=read_identity(),
        model=parse_model(text),
        soc=parse_soc(text),
        os=parse_os(text),
        libc=" ".join(platform.libc_ver()),
        python=platform.python_version(),
        platform=sysconfig.get_platform(),
        cpus=usable,
        clusters=parse_clusters(text, usable),
        caps_mhz=state.caps_mhz,
        power_mode=state.power_mode,
        versions=tuple((name, said) for name, (is_there, said) in found.items() if is_there),
        problems=tuple((name, said) for name, (is_there, said) in found.items() if not is_there),
        clock_s=int(text["clock_s"]),
    )


def _version(module: str, distribution: str) -> tuple[bool, str]:
    """The version of a library, or why it cannot be imported.

    In a child: on some boards an import ends with an illegal instruction.
    """
    command = [sys.executable, "-c", _IMPORT, module, distribution]
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_IMPORT_LIMIT_S,
            # ONNX Runtime reports its import otherwise, as `OnnxRunner` says.
            env={"ORT_DISABLE_TELEMETRY": "1", **os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"its import takes more than {_IMPORT_LIMIT_S:g} s"
    if done.returncode < 0:
        return False, f"its import ends with signal {-done.returncode}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return done.returncode == 0, last.strip()
