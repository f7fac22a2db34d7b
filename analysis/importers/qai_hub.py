"""AI Hub's published job results: `perf.yaml`, `info.yaml`, `numerics.yaml` of each model.

Source: quic/ai-hub-models. A figure is one job on one device of the vendor's farm: the shortest
time of an inference (AI Hub's documentation, "How it works", Inference), and an estimated range of
memory that depends on device and release more than on the model.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.importers.importer import Importer, read_tables
from fleetrank.analysis.importers.qai_hub_files import FILES, UNITS, HubModel, Job, read_models
from fleetrank.analysis.importers.release import (
    Equivalences,
    Release,
    Row,
    device_names,
    drop,
    is_sentinel,
    load_equivalences,
    named,
    unequal_notes,
    whole,
)
from fleetrank.foundation.units import BYTES_PER_MIB

SOURCE = "qai-hub"
LICENCE = "BSD-3-Clause, quic/ai-hub-models"

_RUNTIMES = {
    "tflite": ("tflite", "tflite", {}),
    "torchscript_onnx_tflite": ("tflite", "tflite", {}),
    "onnx": ("onnx", "onnx_runtime", {}),
    "torchscript_onnx": ("onnx", "onnx_runtime", {}),
    "torchscript_onnx_ort": ("onnx", "onnx_runtime", {}),
    "precompiled_qnn_onnx": ("onnx", "onnx_runtime", {"path": "precompiled_qnn"}),
    "qnn": ("qnn", "qairt", {}),
    "torchscript_onnx_qnn": ("qnn", "qairt", {}),
    "qnn_dlc": ("qnn", "qairt", {"path": "dlc"}),
    "qnn_context_binary": ("qnn", "qairt", {"path": "context_binary"}),
}
"""The source's word to runtime, the tool with the runtime's version, and options."""
_FLOAT_ON = {"npu": "fp16", "gpu": "fp16", "cpu": "fp32"}
"""`float` says how the model is stored; older releases say fp16 for the same jobs on an NPU."""
_QUANTISED = re.compile(r"w8a\d+\w*")
_WIDE_ACTIVATIONS = {"uint16", "int16"}
"""Older releases name a model with 8-bit weights after its 16-bit activations."""
_PROXY = "(Proxy)"
_DERIVED = (
    "latency_p50_ns: the shortest time of a job, the vendor's one figure",
    "peak_memory_bytes: upper end of the vendor's estimated range",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What the rows of a release take from outside their own job.

    Attributes:
        devices: published device name to ours, over every release that is read.
        aliases: device names that repeat the jobs of another device, to that device.
    """

    equivalences: Equivalences
    devices: Mapping[str, str]
    aliases: Mapping[str, str]


def parse_qai_hub(files: Mapping[str, bytes]) -> tuple[Release, ...]:
    """Reads AI Hub's files, relative path to content; oldest release first.

    A release is a folder `v1.2.3`, or the checkout whose `_version.py` is among the files.

    Raises:
        AnalysisError: no `perf.yaml`, or one that is not YAML.
    """
    equivalences = load_equivalences(SOURCE)
    releases = read_models(files)
    published = (job.device for _, models in releases for model in models for job in model.jobs)
    devices = device_names(SOURCE, published)
    return tuple(
        _make_release(
            version,
            models,
            _Context(equivalences=equivalences, devices=devices, aliases=_aliases(models)),
        )
        for version, models in releases
    )


def _make_release(version: str, models: list[HubModel], context: _Context) -> Release:
    rows = [row for model in models for row in _model_rows(model, context)]
    return Release(
        source=SOURCE,
        version=version,
        licence=LICENCE,
        rows=tuple(rows),
        aliases=tuple(sorted(context.aliases.items())),
        notes=_notes(models, context),
    )


def _aliases(models: list[HubModel]) -> dict[str, str]:
    """Device names that repeat the jobs of another device, to that device.

    Of two names the one that is not a proxy is kept, or else the first in alphabetical order.
    """
    devices: dict[str, set[str]] = defaultdict(set)
    for model in models:
        for job in model.jobs:
            if job.job_id:
                devices[job.job_id].add(job.device)
    aliases: dict[str, str] = {}
    for names in devices.values():
        kept, *others = sorted(names, key=lambda name: (_PROXY in name, name))
        aliases |= dict.fromkeys(others, kept)
    return aliases


def _model_rows(model: HubModel, context: _Context) -> Iterator[Row]:
    measured = {(job.device, *_where(job)): job.job_id for job in model.jobs}
    for job in model.jobs:
        kept = context.aliases.get(job.device)
        if kept is None:
            yield _row(model, job, job.device, context)
            continue
        there = measured.get((kept, *_where(job)))
        if there is None:
            yield _row(model, job, kept, context)
            continue
        row = _row(model, job, job.device, context)
        is_mirror = there == job.job_id
        yield drop(row, "mirror", f"job {job.job_id} of {kept} again") if is_mirror else row


def _where(job: Job) -> tuple[str, str, str]:
    return job.component, job.precision, job.path


def _row(model: HubModel, job: Job, device: str, context: _Context) -> Row:
    row = (
        model.facts
        | _job_facts(job, device, context.devices[device])
        | {"source_ref": model.reference}
    )
    if device != job.device:
        row["derived"] = [*_DERIVED, f"device: published as {job.device}, an alias"]
    if job.n_components > 1:
        row["model"] = f"{SOURCE}:{model.name}/{job.component}"
    else:
        row = named(row, model.name, context.equivalences)
    return _checked(row, job)


def _checked(row: Row, job: Job) -> Row:
    """The row with its latency, or dropped with the reason it has none."""
    if not job.has_passed:
        return drop(row, "job not passed", job.job_id)
    if job.latency is None:
        return drop(row, "no latency", job.job_id)
    if job.latency <= 0 or is_sentinel(job.latency) or is_sentinel(job.latency * 1000):
        return drop(row, "sentinel", f"latency {job.latency:g} in job {job.job_id}")
    if row["runtime"] is None:
        return drop(row, "unknown runtime", job.path)
    if row["precision"] is None:
        return drop(row, "unknown precision", f"{job.precision} on {job.unit or 'an unknown unit'}")
    return row | {"status": "ok", "latency_p50_ns": job.latency * job.latency_unit_ns}


def _job_facts(job: Job, device: str, name: str) -> Row:
    runtime, tool, options = _RUNTIMES.get(job.path, (None, "", {}))
    unit = job.unit.lower() or "unknown"
    precision = _precision(job.precision, unit)
    if precision == "int8" and job.precision not in {"int8", "w8a8"}:
        options = options | {"quantisation": job.precision}
    memory = None if _is_code(job) else whole(job.memory_max_bytes)
    return {
        "source": SOURCE,
        "licence": LICENCE,
        "derived": list(_DERIVED),
        "device": name,
        "device_model": device,
        "tier": "edge",
        "os": job.os,
        "runtime": runtime,
        "backend": unit,
        "mode": "eager",
        "precision": precision,
        "batch": 1,
        "options": _compact(options),
        **_placement(job, unit),
        "runtime_version": job.tools.get(tool),
        "runtime_settings": _compact(
            {"job_id": job.job_id, "layers": dict(job.layers), "tools": dict(job.tools)}
            | ({} if job.timestamp is None else {"timestamp": job.timestamp})
        ),
        "sample_kind": "vendor",
        "statistic": "minimum",
        "memory_metric": "vendor_estimate" if memory else None,
        "peak_memory_bytes": memory or None,
    }


def _placement(job: Job, unit: str) -> Row:
    """Layers on the unit that is the backend, and all layers; nothing if none are stated."""
    n_layers = whole(sum(job.layers.values()))
    if unit not in UNITS or not n_layers:
        return {}
    return {"backend_nodes": job.layers.get(unit, 0), "graph_nodes": n_layers}


def _is_code(job: Job) -> bool:
    """Whether the memory estimate is a code for 'missing', in bytes or in MiB; 0 is one."""
    value = job.memory_max_bytes
    return value is not None and (is_sentinel(value) or is_sentinel(value / BYTES_PER_MIB))


def _compact(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _precision(word: str, unit: str) -> str | None:
    if word == "float":
        return _FLOAT_ON.get(unit)
    if word in {"fp16", "fp32", "int8"}:
        return word
    return "int8" if word in _WIDE_ACTIVATIONS or _QUANTISED.fullmatch(word) else None


def _notes(models: list[HubModel], context: _Context) -> tuple[str, ...]:
    jobs = [job for model in models for job in model.jobs]
    proxies = sorted({job.device for job in jobs if _PROXY in job.device} - set(context.aliases))
    elsewhere = sum(job.unit in {"CPU", "GPU"} for job in jobs)
    partly = sum(job.unit == "NPU" and bool(set(job.layers) - {"npu"}) for job in jobs)
    no_memory = sum(job.memory_max_bytes is None or _is_code(job) for job in jobs)
    several = sorted({model.name for model in models for job in model.jobs if job.n_components > 1})
    notes = [
        "Latency is the shortest time of one job on the vendor's farm; memory is the upper end of "
        "an estimated range and is never compared with a resident size.",
        "Float models count as fp16 on NPU and GPU, and as fp32 on CPU.",
    ]
    if proxies:
        notes.append(f"Proxies run on related silicon, not on the named device: {_list(proxies)}.")
    if elsewhere:
        notes.append(
            f"{elsewhere} of {len(jobs)} jobs ran on CPU or GPU (primary_compute_unit); these "
            "are separate platforms."
        )
    if partly:
        notes.append(
            f"{partly} of {len(jobs)} jobs on the NPU ran some layers elsewhere "
            "(`backend_nodes` below `graph_nodes`)."
        )
    if no_memory:
        notes.append(
            f"{no_memory} of {len(jobs)} memory estimates are missing, or a code for it such as 0: "
            "unknown."
        )
    if several:
        notes.append(f"Several components, each in a separate row: {_list(several)}.")
    return (*notes, *unequal_notes({model.name for model in models}, context.equivalences))


def _list(names: list[str]) -> str:
    return ", ".join(names)


def _read_folder(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    files = read_tables(path, *(f"**/{name}" for name in FILES))
    # The folder of a release has the release's name.
    return parse_qai_hub({f"{path.resolve().name}/{name}": files[name] for name in files})


IMPORTER = Importer(read=_read_folder)
