"""Checks that the runtimes, exporters and Ray are installed and can be imported."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata

from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.orchestrator.doctor import RUNTIME, Finding, error, ok, warning

_IMPORT_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLibrary:
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


def _of_runtime(name: str) -> CheckedLibrary:
    needed = RUNNERS.load(name).library
    return CheckedLibrary(
        check=f"{RUNTIME} {name}",
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
    CheckedLibrary(check="exporter onnx", extra="onnx", distribution="onnx", target="onnx"),
    CheckedLibrary(check="exporter onnxscript", extra="torch", distribution="onnxscript",
            target="onnxscript", is_slow=True),
    # Before timm, which imports torchvision and fails if its operators do not match torch.
    CheckedLibrary(check="networks torchvision", extra="torch", distribution="torchvision",
            target=_TORCHVISION, is_slow=True),
    CheckedLibrary(check="networks timm", extra="torch", distribution="timm", target="timm",
            is_slow=True),
    CheckedLibrary(check="exporter tflite", extra="tflite", distribution="litert-torch",
            target="litert_torch", is_slow=True),
    CheckedLibrary(check="exporter executorch", extra="executorch", distribution="executorch",
            target=_XNNPACK, is_slow=True),
    CheckedLibrary(check="converter keras", extra="tensorflow", distribution="tensorflow-cpu",
            target="tensorflow", is_slow=True),
    CheckedLibrary(check="ray", extra="cluster", distribution="ray", target="ray"),
    CheckedLibrary(check="sql", extra="analysis", distribution="duckdb", target="duckdb",
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


def judge_library(library: CheckedLibrary, version: str | None, failure: str | None) -> Finding:
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
    if not asked & {library.extra for library in LIBRARIES if library.check.startswith(RUNTIME)}:
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
