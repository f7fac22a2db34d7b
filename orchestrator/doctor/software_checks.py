"""Checks that the runtimes, exporters and Ray are installed and can be imported."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.orchestrator.doctor.finding import Finding, ok, warning
from fleetrank.orchestrator.doctor.finding import error as failed

_IMPORT_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library to check: `target` is a module, or a function (`module:name`) that imports it."""

    check: str
    extra: str
    distribution: str
    target: str
    without: str = "sweeps that need it do not start"


def _of_runtime(name: str) -> Library:
    needed = RUNNERS.load(name).library
    return Library(
        check=f"runtime {name}",
        extra=needed.extra,
        distribution=needed.distribution,
        target=needed.module,
    )


LIBRARIES = (
    *(_of_runtime(name) for name in RUNNERS),
    Library(check="exporter onnx", extra="onnx", distribution="onnx", target="onnx"),
    Library(
        check="exporter onnxscript",
        extra="torch",
        distribution="onnxscript",
        target="onnxscript",
    ),
    # Before timm, which imports torchvision and fails if its operators do not match torch.
    Library(
        check="networks torchvision",
        extra="torch",
        distribution="torchvision",
        target="fleetrank.models.networks.build:import_torchvision",
    ),
    Library(check="networks timm", extra="torch", distribution="timm", target="timm"),
    Library(
        check="exporter tflite",
        extra="tflite",
        distribution="litert-torch",
        target="litert_torch",
    ),
    Library(
        check="exporter executorch",
        extra="executorch",
        distribution="executorch",
        target="executorch.backends.xnnpack.partition.xnnpack_partitioner",
    ),
    Library(
        check="converter keras",
        extra="tensorflow",
        distribution="tensorflow-cpu",
        target="tensorflow",
    ),
    Library(check="ray", extra="cluster", distribution="ray", target="ray"),
    Library(
        check="tables",
        extra="analysis",
        distribution="scipy",
        target="scipy.stats",
        without="tables and comparisons need it",
    ),
    Library(
        check="sql",
        extra="analysis",
        distribution="duckdb",
        target="duckdb",
        without="`fleetrank query` needs it",
    ),
)

_IMPORT_ALL = """
import importlib, json, sys
failed = {}
for target in json.load(sys.stdin):
    name, _, function = target.partition(":")
    try:
        module = importlib.import_module(name)
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


def import_failures(targets: list[str]) -> dict[str, str]:
    """Imports libraries in a new process, in order, and returns the reasons of failures.

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
        return failed(
            library.check,
            f"{library.distribution} {version} cannot be imported: {failure}",
            f"reinstall it: pip install --force-reinstall 'fleetrank[{library.extra}]'",
        )
    return ok(library.check, f"{library.distribution} {version}")


def check_software() -> list[Finding]:
    """Checks every runtime, exporter and Ray, and imports those that are installed."""
    versions = {library: version_of(library.distribution) for library in LIBRARIES}
    failures = import_failures([library.target for library in LIBRARIES if versions[library]])
    return [
        judge_library(library, version, failures.get(library.target))
        for library, version in versions.items()
    ]
