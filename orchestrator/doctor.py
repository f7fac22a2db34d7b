"""Checks this host, its devices and its libraries; each finding has its remedy."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

import psutil

from fleetrank.analysis.importers.importer import OUTSIDE_IMPORTERS
from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.walls import NETWORK_ABI, names_of
from fleetrank.device_agents.confinement.walls import abi as landlock_abi
from fleetrank.device_agents.host.conditions import read_governor
from fleetrank.device_agents.host.control_groups import cpu_quota_cores
from fleetrank.device_agents.registry import OUTSIDE_KINDS, all_kinds
from fleetrank.device_agents.runtimes.runner import RUNNERS, check_library
from fleetrank.device_agents.timing import MAX_BUSY_SHARE
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.vocabulary import Runtime


class Level(StrEnum):
    """Severity of a finding: an error stops a sweep, a warning reduces its quality."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor; `remedy` is `None` exactly when the level is ok."""

    check: str
    level: Level
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """No action is needed."""
    return Finding(check=check, level=Level.OK, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """A sweep runs, but with lower quality or fewer devices."""
    return Finding(check=check, level=Level.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """A sweep cannot run."""
    return Finding(check=check, level=Level.ERROR, message=message, remedy=remedy)


# Checks whether this host is suitable for measuring, and what it can see of each kind.

_GIB = 1024**3
MIN_FREE_DISK_BYTES = 2 * _GIB
"""13 models in three formats take 0.9 GiB; half of this is the minimum to finish a sweep."""
_BUSY_WINDOW_S = 0.5


def judge_disk(free_bytes: int) -> Finding:
    """Checks the free space of the workspace's file system."""
    message = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes >= MIN_FREE_DISK_BYTES:
        return ok("disk", message)
    remedy = (
        "free some space, or limit the artifact cache: `fleetrank models export` with "
        "`max_size=2GB`"
    )
    if free_bytes >= MIN_FREE_DISK_BYTES // 2:
        return warning("disk", message, remedy)
    return error("disk", message, remedy)


def judge_cores(usable: int, present: int, quota: float | None) -> Finding:
    """Compares the cores that this process may use with those of the machine.

    Args:
        usable: those that the system lets it run on.
        present: all.
        quota: as `cpu_quota_cores`.
    """
    if quota is not None:
        return warning(
            "cores",
            f"this machine may use {quota:.3g} of {present} cores: a control group has a CPU quota",
            "raise the limit of the container or pod, or measure with fewer threads; rows that it "
            "stops are flagged `cpu_quota` until then",
        )
    if usable < present:
        return warning(
            "cores",
            f"only {usable} of {present} cores may be used",
            "start fleetrank without taskset or a cpuset to use them all",
        )
    return ok("cores", f"{present} cores")


def judge_governor(governor: str | None) -> Finding:
    """Checks the frequency governor; `None` if the system does not report it, as in most VMs."""
    if governor is None:
        return ok("governor", "not reported by this system (usual in a virtual machine)")
    if governor == "performance":
        return ok("governor", governor)
    return warning(
        "governor",
        f"{governor}: the clock frequency depends on the load",
        "set it with `cpupower frequency-set -g performance` (needs root)",
    )


def judge_load(busy_share: float) -> Finding:
    """Checks the share of all cores' time that other processes are using now."""
    message = f"{busy_share:.0%} of the cores are busy"
    if busy_share <= MAX_BUSY_SHARE:
        return ok("load", message)
    return warning(
        "load",
        message,
        "stop other work on this host: it can make 2-thread runs several times slower",
    )


def judge_niceness(niceness: int) -> Finding:
    """Checks the priority that every measuring process would inherit."""
    if niceness <= 0:
        return ok("niceness", str(niceness))
    return warning(
        "niceness",
        f"{niceness}: measurements run at low priority",
        "start fleetrank from a shell that is not niced; rows are flagged `niced` until then",
    )


def judge_memory(available_bytes: int) -> Finding:
    """Checks the available memory; exporting the largest model takes about 3 GiB."""
    message = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes >= 4 * _GIB:
        return ok("memory", message)
    return warning("memory", message, "close other programs: large exports may be killed")


def judge_confinement(abi: int | None, *, has_filter: bool) -> Finding:
    """Checks the confinement of model files from outside.

    Args:
        abi: as in `walls.abi`.
        has_filter: as in `seccomp.is_available`.
    """
    names = names_of(abi, has_filter=has_filter, has_audit=True)
    if abi is None:
        return warning(
            "confinement",
            f"{names}: this kernel has no Landlock, so only Python keeps model files from outside "
            "from reading and writing your files",
            "use Linux 6.7 or later with `landlock` among the names in /sys/kernel/security/lsm; "
            "until then measure files from outside as another user or in a container",
        )
    is_tcp_open = abi < NETWORK_ABI and not has_filter
    network = ", which leaves TCP open (Linux 6.7 closes it)" if is_tcp_open else ""
    return ok("confinement", f"{names} around model files from outside{network}")


def check_host(folder: Path) -> Iterator[Finding]:
    """Reads this host's state and checks it; takes about half a second to sample the load."""
    yield judge_disk(shutil.disk_usage(folder).free)
    yield judge_memory(psutil.virtual_memory().available)
    yield judge_cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1, cpu_quota_cores())
    yield judge_governor(read_governor())
    yield judge_load(psutil.cpu_percent(interval=_BUSY_WINDOW_S) / 100)
    yield judge_niceness(os.nice(0))
    yield judge_confinement(landlock_abi(), has_filter=seccomp.is_available())


def check_devices() -> Iterator[Finding]:
    """Checks what the kinds of devices need of this host, such as adb or a GPU's driver."""
    kinds = all_kinds().values()
    for check in (check for one in kinds if one.check_host for check in one.check_host()):
        if check.remedy is None:
            yield ok(check.name, check.message)
        else:
            yield warning(check.name, check.message, check.remedy)


# Checks that the runtimes, exporters and Ray are installed and can be imported.

_IMPORT_TIMEOUT_S = 120
_RUNTIME = "runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library to check: `target` is a module, or a function (`module:name`) that imports it.

    Attributes:
        is_slow: its import takes longer than a person waits; only a thorough check tries it.
        binary: of a slow one, what the usual check loads: a package, and its compiled file.
    """

    check: str
    extra: str
    distribution: str
    target: str
    without: str = "sweeps that need it do not start"
    is_slow: bool = False
    binary: str | None = None

    def tried(self, *, is_thorough: bool) -> str | None:
        """The module, function or file that a check loads; `None` for none."""
        return self.target if is_thorough or not self.is_slow else self.binary


def _of_runtime(name: str) -> Library:
    needed = RUNNERS.load(name).library
    return Library(
        check=f"{_RUNTIME} {name}",
        extra=needed.extra or "",
        distribution=needed.distribution,
        target=needed.module,
        # ExecuTorch loads its exporter too.
        is_slow=needed.distribution in ("executorch", "torch"),
        binary="torch/_C.*" if needed.distribution == "torch" else None,
    )


_TORCHVISION = "fleetrank.models.networks.build:import_torchvision"
_XNNPACK = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
LIBRARIES = (
    *(_of_runtime(name) for name in RUNNERS),
    Library(check="exporter onnx", extra="onnx", distribution="onnx", target="onnx"),
    Library(check="exporter onnxscript", extra="torch", distribution="onnxscript",
            target="onnxscript", is_slow=True),
    # Before timm, which imports torchvision and fails if its operators do not match torch.
    Library(check="networks torchvision", extra="torch", distribution="torchvision",
            target=_TORCHVISION, is_slow=True),
    Library(check="networks timm", extra="torch", distribution="timm", target="timm", is_slow=True),
    Library(check="exporter tflite", extra="tflite", distribution="litert-torch",
            target="litert_torch", is_slow=True),
    Library(check="exporter executorch", extra="executorch", distribution="executorch",
            target=_XNNPACK, is_slow=True),
    Library(check="converter keras", extra="tensorflow", distribution="tensorflow-cpu",
            target="tensorflow", is_slow=True),
    Library(check="ray", extra="cluster", distribution="ray", target="ray"),
    Library(check="tables", extra="analysis", distribution="scipy", target="scipy.special",
            without="tables and comparisons need it"),
    Library(check="sql", extra="analysis", distribution="duckdb", target="duckdb",
            without="`fleetrank query` needs it"),
)  # fmt: skip

_IMPORT_ALL = """
import ctypes, glob, importlib, importlib.util, json, os, sys
failed = {}
for target in json.load(sys.stdin):
    name, _, function = target.partition(":")
    try:
        package, _, file = name.partition("/")
        if file:
            spec = importlib.util.find_spec(package)
            folder = glob.escape(os.path.dirname(spec and spec.origin or ""))
            if not folder or not (found := glob.glob(os.path.join(folder, file))):
                raise ImportError(f"{package} has no file {file}")
            ctypes.CDLL(found[0])
            continue
        module = importlib.import_module(name)
        if module.__file__ is None:
            raise ImportError(f"{name} is a folder without code")
        if function:
            getattr(module, function)()
    except Exception as exception:
        failed[target] = f"{type(exception).__name__}: {exception}"
print("\\n" + json.dumps(failed))
"""


def version_of(distribution: str) -> str | None:
    """Version of a distribution; `None` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def unmet_pin(distribution: str) -> str | None:
    """Which library a distribution needs in exactly one version, where another one is installed.

    torchvision is compiled for one release of torch, and does not load beside another one.
    """
    for text in metadata.requires(distribution) or ():
        pin = re.fullmatch(r"([\w.-]+) ?\(?==([\w.]+)\)?", text)
        found = version_of(pin[1]) if pin else None
        if pin and (found or "").partition("+")[0] != pin[2]:
            return f"it needs {pin[1]} {pin[2]}, and {found or 'none'} is installed"
    return None


def import_failures(targets: list[str]) -> dict[str, str]:
    """Loads modules and files in a new process, in order, and returns the reasons of failures.

    If a library crashes the process, all of them are reported as failed.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT_ALL],
            input=json.dumps(targets),
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=True,
            # ONNX Runtime reports its import otherwise, as `OnnxRunner` says.
            env={"ORT_DISABLE_TELEMETRY": "1", **os.environ},
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exception:
        return dict.fromkeys(targets, str(exception))
    failures: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
    return failures


def judge_library(library: Library, version: str | None, failure: str | None) -> Finding:
    """Checks one library; a missing one is a warning, because a sweep skips its cells."""
    if version is None:
        return warning(
            library.check,
            f"{library.distribution} is not installed: {library.without}",
            f"pip install 'fleetrank[{library.extra}]'",
        )
    if failure is not None:
        return error(
            library.check,
            f"{library.distribution} {version} cannot be imported: {failure}",
            f"reinstall it: pip install --force-reinstall 'fleetrank[{library.extra}]'",
        )
    return ok(library.check, f"{library.distribution} {version}")


def check_software(*, is_thorough: bool = False) -> Iterator[Finding]:
    """Checks the libraries of every extra of which something is installed, and imports them.

    Args:
        is_thorough: imports also those whose import takes long; else of these only the compiled
            file is loaded, or the versions are compared that they need.
    """
    versions = {library: version_of(library.distribution) for library in LIBRARIES}
    asked = {library.extra for library, version in versions.items() if version is not None}
    if not asked & {library.extra for library in LIBRARIES if library.check.startswith(_RUNTIME)}:
        message = "no runtime is installed, so nothing can be measured here"
        yield error("runtimes", message, "pip install 'fleetrank[onnx]'")
    wanted = [library for library in LIBRARIES if library.extra in asked]
    targets = {one: one.tried(is_thorough=is_thorough) for one in wanted if versions[one]}
    # Two processes for two cores: PyTorch and Ray take as long as all the others.
    groups = [
        [library for library in wanted if (library.extra in ("torch", "cluster")) == is_large]
        for is_large in (False, True)
    ]
    tried = [[text for one in group if (text := targets.get(one))] for group in groups]
    with ThreadPoolExecutor(len(groups)) as pool:
        for group, failures in zip(groups, pool.map(import_failures, tried), strict=True):
            for one in group:
                failure = failures.get(targets.get(one) or "")
                if failure is None and versions[one]:
                    failure = unmet_pin(one.distribution)
                yield judge_library(one, versions[one], failure)


# What other packages add, by entry points.


def check_packages() -> Iterator[Finding]:
    """Lists every runtime, kind of device and importer of other packages; imports each of them."""
    for noun, family in (
        (_RUNTIME, OUTSIDE_RUNTIMES),
        ("kind", OUTSIDE_KINDS),
        ("importer", OUTSIDE_IMPORTERS),
    ):
        for one in family.examined():
            check = f"{noun} {one.name}"
            try:
                if one.error is not None:
                    raise one.error
                if family is OUTSIDE_RUNTIMES:
                    check_library(Runtime(one.name))
                yield ok(check, f"of package {one.maker}")
            except FleetError as fault:
                yield warning(check, fault.message, fault.remedy)
