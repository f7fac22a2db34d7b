"""Are the runtimes, exporters and Ray here, and do they load?"""

import json
import subprocess
import sys
from importlib import metadata

from orchestrator.doctor.finding import Finding, ok, warning
from orchestrator.doctor.finding import error as failed

_IMPORT_TIMEOUT_S = 120

RUNTIMES = {"onnx": "onnxruntime", "torch": "torch", "tflite": "ai_edge_litert.interpreter"}
EXPORTERS = {"onnx": "onnxscript", "torch": "timm", "tflite": "litert_torch"}
DISTRIBUTIONS = {
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    "ai_edge_litert.interpreter": "ai-edge-litert",
    "onnxscript": "onnxscript",
    "timm": "timm",
    "litert_torch": "litert-torch",
    "ray": "ray",
}

_IMPORT_ALL = """
import importlib, json, sys
failed = {}
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except Exception as exception:
        failed[name] = f"{type(exception).__name__}: {exception}"
print("\\n" + json.dumps(failed))
"""


def version_of(module: str) -> str | None:
    """Version of the distribution that holds a module; `None` when it is not installed."""
    try:
        return metadata.version(DISTRIBUTIONS[module])
    except metadata.PackageNotFoundError:
        return None


def import_failures(modules: list[str]) -> dict[str, str]:
    """Imports modules in a fresh process and returns the reasons of those that failed.

    A library that takes the process down with it is blamed on all of them.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT_ALL],
            input=json.dumps(modules),
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exception:
        return dict.fromkeys(modules, str(exception))
    failures: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
    return failures


def judge_library(
    check: str, extra: str, module: str, version: str | None, failure: str | None
) -> Finding:
    """Judges one library; without it a sweep leaves its cells out, so it is a warning."""
    if version is None:
        return warning(
            check,
            f"{module} is not installed: {extra} cells are not possible",
            f"pip install 'fleetrank[{extra}]'",
        )
    if failure is not None:
        return failed(
            check,
            f"{module} {version} does not load: {failure}",
            f"reinstall it: pip install --force-reinstall 'fleetrank[{extra}]'",
        )
    return ok(check, f"{module} {version}")


def check_software() -> list[Finding]:
    """Looks for every runtime, exporter and Ray, and imports those that are installed."""
    wanted = [
        *((f"runtime {extra}", extra, module) for extra, module in RUNTIMES.items()),
        *((f"exporter {extra}", extra, module) for extra, module in EXPORTERS.items()),
        ("ray", "cluster", "ray"),
    ]
    versions = {module: version_of(module) for _, _, module in wanted}
    failures = import_failures([module for module, version in versions.items() if version])
    return [
        judge_library(check, extra, module, versions[module], failures.get(module))
        for check, extra, module in wanted
    ]
