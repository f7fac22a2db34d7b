"""AI Hub's published job results: `perf.yaml`, `info.yaml`, `numerics.yaml` of each model.

Source: quic/ai-hub-models, `qai_hub_models/models/*/perf.yaml`, in two layouts that are read into
the same jobs. Up to about v0.20: `models` is a list, microseconds, bytes, missing is the word
`null`. Later: `precisions` > `components` > `performance_metrics`, milliseconds, whole MiB under
the name `_mb`. Devices under `supported_devices` were not measured; only those under
`performance_metrics` were.

A figure is one job on one device of the vendor's farm: the shortest time of an inference (AI Hub's
documentation, "How it works", Inference), and an estimated range of memory that depends on device
and release more than on the model. A language model has tokens per second and a range of times to
the first token instead; they are workloads `decode@CONTEXT` and `prefill@PROMPT`.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import Importer, read_tables
from fleetrank.analysis.importers.release import (
    Equivalences,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    is_sentinel,
    load_equivalences,
    named,
    read_number,
    unequal_notes,
    whole,
)
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import RECORD, check_events
from fleetrank.foundation.small_file import decoded
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_US
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.workload import Workload, WorkloadKind

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
    "genie": ("qnn", "qairt", {"path": "genie"}),
    "voice_ai": ("qnn", "qairt", {"path": "voice_ai"}),
    "onnx_fp16": ("onnx", "onnx_runtime", {"path": "onnx_fp16"}),
    "onnxruntime_genai": ("onnx", "onnx_runtime", {"path": "genai"}),
    **dict.fromkeys(("llama_cpp_cpu", "llama_cpp_gpu", "llama_cpp_npu"),
                    ("llama.cpp", "llama_cpp", {})),
}  # fmt: skip
"""The source's word to runtime, the tool with the runtime's version, and options."""
_FLOAT_ON = {"npu": "fp16", "gpu": "fp16", "cpu": "fp32"}
"""`float` says how the model is stored; older releases say fp16 for the same jobs on an NPU."""
_QUANTISED = re.compile(r"(w4|q4|mxfp4)\w*|(w\d|q\d|mixed|u?int16)\w*")
"""With weights of 4 bits, or else of more, all or in part: the option `quantisation` has the word.
Older releases name a model with 8-bit weights after its 16-bit activations, `uint16`."""
_PROXY = "(Proxy)"
_DERIVED = (
    "latency_p50_ns: the shortest time of a job, the vendor's one figure",
    "peak_memory_bytes: upper end of the vendor's estimated range",
)
_RATE, _FIRST_TOKEN = "tokens_per_second", "time_to_first_token_range_milliseconds"
_PROMPT = 128
"""Tokens of the shortest prompt, unless the file says otherwise."""
_ROUNDING = 0.001
"""The vendor rounds to a microsecond: less than this of 10 ms."""
FILES = ("perf.yaml", "info.yaml", "numerics.yaml", "_version.py")

_TESTS = {"test", "tests"}
"""Folders with fixtures: no model was measured there."""
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9}
_VERSION = re.compile(r"""__version__\s*=\s*["']([\w.]+)["']""")
_RELEASE_FOLDER = re.compile(r"v?\d+(\.\d+)+([a-z]+\d+)?")
"""Also `v0.4.0r1`, a release beside `v0.4.0`."""
UNITS = ("npu", "gpu", "cpu")
"""Where a layer can run."""
_PASSED = "Passed"

Node = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJob:
    """One measurement as published, in our units.

    Attributes:
        n_components: of the model; each is measured alone.
        path: runtime in the source's words, such as `torchscript_onnx_tflite`.
        precision: in the source's words: `float`, `w8a8`, `fp16`.
        latency: as written, in `latency_unit_ns`; `None` if it is not a number.
        memory_max_bytes: upper end of the vendor's estimate.
        unit: what did most of the work: `NPU`, `GPU`, `CPU`.
        layers: how many ran on each of `UNITS`; empty if not stated.
        workload: of a language model; `None` for the others.
        means: how the latency follows from published figures; `None` if it is one.
    """

    component: str
    n_components: int
    device: str
    path: str
    precision: str
    job_id: str
    has_passed: bool
    latency: float | None
    latency_unit_ns: float
    memory_min_bytes: float | None
    memory_max_bytes: float | None
    unit: str
    layers: Mapping[str, int]
    tools: Mapping[str, str]
    os: str | None = None
    timestamp: str | None = None
    workload: Workload | None = None
    means: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One model folder of one release.

    Attributes:
        accuracy: the entry of `numerics.yaml` about images of ImageNet; empty without one.
    """

    name: str
    reference: str
    jobs: tuple[PublishedJob, ...]
    facts: Row
    accuracy: Node


def read_models(files: Mapping[str, bytes]) -> list[tuple[str, list[HubModel]]]:
    """The model folders of each release, oldest first; files are relative path to content.

    A release is a folder `v1.2.3`, or the checkout whose `_version.py` is among the files.

    Raises:
        AnalysisError: no `perf.yaml`, or one that is not YAML.
    """
    releases: dict[str, list[HubModel]] = defaultdict(list)
    checkout = _release_of_checkout(files)
    for path in sorted(files):
        parts = PurePosixPath(path).parts
        if parts[-1] == "perf.yaml" and not _TESTS & {*parts}:
            release = next(filter(_RELEASE_FOLDER.fullmatch, parts), checkout)
            releases[release].append(_read_model(path, files))
    if not releases:
        raise AnalysisError(
            "no perf.yaml of AI Hub", "name a checkout of ai-hub-models, or a folder of models"
        )
    return sorted(
        releases.items(),
        key=lambda item: ([int(digits) for digits in re.findall(r"\d+", item[0])], item[0]),
    )


def _release_of_checkout(files: Mapping[str, bytes]) -> str:
    for name, content in files.items():
        if PurePosixPath(name).name == "_version.py" and (
            match := _VERSION.search(decoded(content, name, "replace"))
        ):
            return f"v{match[1]}"
    return "unknown"


def _read_model(path: str, files: Mapping[str, bytes]) -> HubModel:
    folder = PurePosixPath(path).parent
    beside = {
        name: _node(_yaml(str(folder / name), files.get(str(folder / name), b"")))
        for name in ("info.yaml", "numerics.yaml")
    }
    accuracy = _of_imagenet(beside["numerics.yaml"])
    return HubModel(
        name=folder.name,
        reference=file_reference(f"{folder.name}/perf.yaml", files[path]),
        jobs=tuple(read_jobs(_yaml(path, files[path]))),
        facts=_info_facts(beside["info.yaml"]) | _float_accuracy(accuracy),
        accuracy=accuracy,
    )


def _yaml(path: str, content: bytes) -> object:
    import yaml

    # The loader in C is ten times faster, but not every wheel has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = decoded(content, path)
        check_events(yaml.parse(text, Loader=loader), path, RECORD)
        return yaml.load(text, Loader=loader)  # noqa: S506
    except BadFileError as error:
        raise AnalysisError(error.message, "fetch it again") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        # PyYAML lets through what its conversions raise: a 13th month, `!!bool maybe`.
        raise AnalysisError(
            f"{path} is not YAML: {shortened(str(error), 300)}", "fetch it again"
        ) from error


def _info_facts(info: Mapping[str, object]) -> Row:
    details = _node(info.get("technical_details"))
    sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(details.get("Input resolution")))
    count = re.fullmatch(r"([\d.]+)([KMB])", str(details.get("Number of parameters")))
    square = sizes is not None and sizes[1] == sizes[2]
    parameters = None if count is None else whole(read_number(count[1]), _UNITS[count[2]])
    return {
        "input_size": int(sizes[1]) if sizes is not None and square else None,
        "parameters": parameters,
    }


def _of_imagenet(numerics: Mapping[str, object]) -> Node:
    metrics = numerics.get("metrics")
    entries = map(_node, metrics if isinstance(metrics, list) else [])
    return next((one for one in entries if "imagenet" in str(one.get("dataset_name"))), {})


def _float_accuracy(accuracy: Node) -> Row:
    """Top-1 of the float model, as tested by the vendor on part of ImageNet."""
    top1, n = read_number(accuracy.get("partial_torch_metric")), accuracy.get("num_partial_samples")
    if top1 is None:
        return {}
    source = f"AI Hub numerics.yaml: float model on {n} images of ImageNet"
    return {"accuracy_top1": top1, "accuracy_source": source}


def read_jobs(document: object) -> list[PublishedJob]:
    """Every measured job of a `perf.yaml` in either layout; nothing for other content."""
    root = _node(document)
    return list(_old_jobs(root)) if "models" in root else list(_new_jobs(root))


def _node(value: object) -> Node:
    """A mapping unchanged, or an empty one for other values: published files have many errors."""
    return {str(key): entry for key, entry in value.items()} if isinstance(value, Mapping) else {}


def _new_jobs(root: Node) -> Iterator[PublishedJob]:
    for precision, entry in _node(root.get("precisions")).items():
        components = _node(_node(entry).get("components"))
        for component, parts in components.items():
            for device, paths in _node(_node(parts).get("performance_metrics")).items():
                for path, content in _node(paths).items():
                    job = _node(content)
                    found = _new_job(job, (component, len(components)), device, path, precision)
                    several = job.get("llm_metrics")
                    runs = several if isinstance(several, list) else [job] if _RATE in job else []
                    yield from _token_jobs(found, map(_node, runs)) if runs else [found]


def _token_jobs(job: PublishedJob, runs: Iterable[Node]) -> Iterator[PublishedJob]:
    """A language model's steps and prompts, of each context; they have no job of their own.

    A context or a prompt of unknown length has no latency, so that its row says so.
    """
    for run in runs:
        prompt, context = _lengths(run)
        rate, times = read_number(run.get(_RATE)), _node(run.get(_FIRST_TOKEN))
        unit = _word(run.get("desired_compute_unit")) or job.path.rpartition("_")[2]
        job = replace(job, has_passed=True, unit=(unit if unit in UNITS else "npu").upper())
        steps = f"latency_p50_ns: 1 / {_RATE}, in a cache of as many tokens as the context"
        yield replace(
            job,
            workload=Workload(kind=WorkloadKind.DECODE, length=context),
            latency=1000 / rate if rate and context else None,
            means=steps,
        )
        if times:
            yield replace(
                job,
                workload=Workload(kind=WorkloadKind.PREFILL, length=prompt),
                latency=read_number(times.get("min")) if prompt else None,
                means="latency_p50_ns: the time to the first token of the shortest prompt",
            )


def _lengths(run: Node) -> tuple[int | None, int | None]:
    """Tokens of the shortest prompt, and of the context; `None` where they cannot be known.

    The vendor scales the time of 128 tokens to the whole context. Newer files state the rate of
    the prompt.

    Source: quic/ai-hub-models, scripts that write `llm_metrics`.
    """
    context = whole(read_number(run.get("context_length")))
    times = _node(run.get(_FIRST_TOKEN))
    least, most = read_number(times.get("min")), read_number(times.get("max"))
    rate = read_number(run.get("prefill_tokens_per_second"))
    if not least or not most:
        return None, context
    scaled = _PROMPT * most / least
    if rate:
        return whole(round(rate * least / 1000)) or None, context
    if context is None and abs(scaled / _PROMPT - round(scaled / _PROMPT)) < _ROUNDING:
        context = whole(_PROMPT * round(scaled / _PROMPT))
    is_scaled = context is not None and abs(scaled / context - 1) < _ROUNDING
    return (_PROMPT if is_scaled else None), context


def _new_job(
    job: Node, component: tuple[str, int], device: str, path: str, precision: str
) -> PublishedJob:
    memory = _node(job.get("estimated_peak_memory_range_mb"))
    layers = _node(job.get("layer_counts"))
    return PublishedJob(
        component=component[0],
        n_components=component[1],
        device=device,
        path=path,
        precision=precision,
        job_id=_word(job.get("job_id")) or "",
        has_passed=job.get("job_status") == _PASSED,
        latency=read_number(job.get("inference_time_milliseconds")),
        latency_unit_ns=NS_PER_MS,
        memory_min_bytes=_scaled(memory.get("min"), BYTES_PER_MIB),
        memory_max_bytes=_scaled(memory.get("max"), BYTES_PER_MIB),
        unit=_word(job.get("primary_compute_unit")) or "",
        layers=_counts({name: layers.get(name) for name in UNITS}),
        tools={name: str(version) for name, version in _node(job.get("tool_versions")).items()},
    )


def _old_jobs(root: Node) -> Iterator[PublishedJob]:
    models = root["models"]
    components = [_node(entry) for entry in models] if isinstance(models, list) else []
    for component in components:
        metrics = component.get("performance_metrics")
        for place in metrics if isinstance(metrics, list) else []:
            about = _node(_node(place).get("reference_device_info"))
            for path, entry in _node(place).items():
                job = _node(entry)
                if "inference_time" in job:
                    yield _old_job(job, (str(component.get("name")), len(components)), path, about,
                                   _word(_node(place).get("timestamp")))  # fmt: skip


def _old_job(
    job: Node, component: tuple[str, int], path: str, about: Node, timestamp: str | None
) -> PublishedJob:
    memory = _node(job.get("estimated_peak_memory_range"))
    layers = _node(job.get("layer_info"))
    system = [word for name in ("os_name", "os") if (word := _word(about.get(name)))]
    return PublishedJob(
        component=component[0],
        n_components=component[1],
        device=_word(about.get("name")) or "",
        path=path,
        precision=_word(job.get("precision")) or "",
        job_id=_word(job.get("job_id")) or "",
        has_passed=job.get("job_status") == _PASSED,
        latency=read_number(job.get("inference_time")),
        latency_unit_ns=NS_PER_US,
        memory_min_bytes=read_number(memory.get("min")),
        memory_max_bytes=read_number(memory.get("max")),
        unit=_word(job.get("primary_compute_unit")) or "",
        layers=_counts({name: layers.get(f"layers_on_{name}") for name in UNITS}),
        tools={},
        os=" ".join(system) or None,
        timestamp=timestamp,
    )


def _word(value: object) -> str | None:
    """A text with content; the word `null` counts as missing."""
    return None if value is None or str(value) == "null" else str(value)


def _scaled(value: object, factor: float) -> float | None:
    number = read_number(value)
    return None if number is None else number * factor


def _counts(values: Mapping[str, object]) -> dict[str, int]:
    numbers = {name: whole(read_number(value)) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if number is not None and number > 0}


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
        evaluations=tuple(one for model in models for one in _evaluations(model, context)),
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
    measured = {(job.device, *_where(job)): (job.job_id, job.latency) for job in model.jobs}
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
        is_mirror = there == (job.job_id, job.latency)
        yield drop(row, "mirror", f"job {job.job_id} of {kept} again") if is_mirror else row


_OF_EVALUATION = ("model", "device", "runtime", "backend", "runtime_version")


def _evaluations(model: HubModel, context: _Context) -> Iterator[Row]:
    """The accuracy of each file where the vendor tested it."""
    for job in model.jobs:
        found = model.accuracy.get("device_metric")
        for part in (job.device, job.precision, job.path):
            found = _node(found).get(part)
        top1 = read_number(_node(found).get("partial_metric"))
        if top1 is None:
            continue
        row = _row(model, job, context.aliases.get(job.device, job.device), context)
        if row["status"] != "ok":
            continue
        is_other = "quantisation" in str(row["options"])
        n = whole(read_number(model.accuracy.get("num_partial_samples")))
        yield {name: row[name] for name in _OF_EVALUATION} | {
            "precision": job.precision if is_other else row["precision"],
            "evaluation_id": f"{SOURCE}-{job.job_id}",
            "weights": "published",
            "task": "images",
            "data": str(model.accuracy.get("dataset_name")),
            "item_limit": n,
            "n_items": n,
            "quality_metric": "top1",
            "quality": top1,
            "flags": ["limited"],
        }


def _where(job: PublishedJob) -> tuple[object, ...]:
    return job.component, job.precision, job.path, job.workload


def _row(model: HubModel, job: PublishedJob, device: str, context: _Context) -> Row:
    row = (
        model.facts
        | _job_facts(job, device, context.devices[device])
        | {"source_ref": model.reference}
    )
    if device != job.device:
        row["derived"] = [*_derived(job), f"device: published as {job.device}, an alias"]
    if job.n_components > 1:
        row["model"] = f"{SOURCE}:{model.name}/{job.component}"
    else:
        row = named(row, model.name, context.equivalences)
    return _checked(row, job)


def _checked(row: Row, job: PublishedJob) -> Row:
    """The row with its latency, or dropped with the reason it has none."""
    if not job.has_passed:
        return drop(row, "job not passed", job.job_id)
    if job.latency is None:
        of = f"{job.workload.kind} of unknown length" if job.workload else job.job_id
        return drop(row, "no latency", of)
    if job.latency <= 0 or is_sentinel(job.latency) or is_sentinel(job.latency * 1000):
        return drop(row, "sentinel", f"latency {job.latency:g} in job {job.job_id}")
    if row["runtime"] is None:
        return drop(row, "unknown runtime", job.path)
    if row["precision"] is None:
        return drop(row, "unknown precision", f"{job.precision} on {job.unit or 'an unknown unit'}")
    return row | {"status": "ok", "latency_p50_ns": job.latency * job.latency_unit_ns}


def _job_facts(job: PublishedJob, device: str, name: str) -> Row:
    runtime, tool, options = _RUNTIMES.get(job.path, (None, "", {}))
    unit = job.unit.lower() or "unknown"
    precision = _precision(job.precision, unit)
    if precision in {"int4", "int8"} and job.precision not in {"int8", "w8a8"}:
        options = options | {"quantisation": job.precision}
    memory = None if _is_code(job) else whole(job.memory_max_bytes)
    return {
        "source": SOURCE,
        "licence": LICENCE,
        "derived": list(_derived(job)),
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
        "statistic": "minimum" if job.workload is None else "mean",
        **_of_tokens(job.workload),
        "memory_metric": "vendor_estimate" if memory else None,
        "peak_memory_bytes": memory or None,
    }


def _derived(job: PublishedJob) -> tuple[str, ...]:
    return _DERIVED if job.means is None else (job.means,)


def _of_tokens(workload: Workload | None) -> Row:
    if workload is None or workload.length is None:
        return {}
    return {
        "workload": str(workload),
        "prompt_tokens": workload.prompt_tokens,
        "context_tokens": workload.context_tokens,
        "tokens_per_inference": workload.tokens_per_sample(1),
    }


def _placement(job: PublishedJob, unit: str) -> Row:
    """Layers on the unit that is the backend, and all layers; nothing if none are stated."""
    n_layers = whole(sum(job.layers.values()))
    if unit not in UNITS or not n_layers:
        return {}
    return {"backend_nodes": job.layers.get(unit, 0), "graph_nodes": n_layers}


def _is_code(job: PublishedJob) -> bool:
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
    found = _QUANTISED.fullmatch(word)
    return None if found is None else "int4" if found[1] else "int8"


def _notes(models: list[HubModel], context: _Context) -> tuple[str, ...]:
    jobs = [job for model in models for job in model.jobs]
    proxies = sorted({job.device for job in jobs if _PROXY in job.device} - set(context.aliases))
    elsewhere = sum(job.unit in {"CPU", "GPU"} for job in jobs)
    partly = sum(job.unit == "NPU" and bool(set(job.layers) - {"npu"}) for job in jobs)
    no_memory = sum(job.memory_max_bytes is None or _is_code(job) for job in jobs)
    unknown = [job for job in jobs if job.workload is not None and job.latency is None]
    several = sorted({model.name for model in models for job in model.jobs if job.n_components > 1})
    notes = [
        "Latency is the shortest time of one job on the vendor's farm; memory is the upper end of "
        "an estimated range and is never compared with a resident size.",
        "Float models count as fp16 on NPU and GPU, and as fp32 on CPU.",
    ]
    if proxies:
        notes.append(
            f"Proxies run on related silicon, not on the named device: {', '.join(proxies)}."
        )
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
    if unknown:
        kinds = Counter(str(job.workload.kind) for job in unknown if job.workload is not None)
        notes.append(
            f"Left out: {', '.join(f'{n} of {kind}' for kind, n in sorted(kinds.items()))}, of "
            f"{sum(job.workload is not None for job in jobs)} figures of language models: the "
            "length of the prompt or context is not published."
        )
    if several:
        notes.append(f"Several components, each in a separate row: {', '.join(several)}.")
    return (*notes, *unequal_notes({model.name for model in models}, context.equivalences))


def _read_folder(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    files = read_tables(path, *(f"**/{name}" for name in FILES))
    # The folder of a release has the release's name.
    return parse_qai_hub({f"{path.resolve().name}/{name}": files[name] for name in files})


IMPORTER = Importer(read=_read_folder)
