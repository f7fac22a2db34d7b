"""The files of AI Hub's model folders: the release of each, and its content.

Source: quic/ai-hub-models, `qai_hub_models/models/*/perf.yaml`, in two layouts that are read into
the same jobs. Up to about v0.20: `models` is a list, microseconds, bytes, missing is the word
`null`. Later: `precisions` > `components` > `performance_metrics`, milliseconds, whole MiB under
the name `_mb`. Devices under `supported_devices` were not measured; only those under
`performance_metrics` were.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import Row, file_reference, read_number, whole
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import RECORD, check_events
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_US
from fleetrank.foundation.visible_text import shortened

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
class Job:
    """One measurement as published, in our units.

    Attributes:
        n_components: of the model; each is measured alone.
        path: runtime in the source's words, such as `torchscript_onnx_tflite`.
        precision: in the source's words: `float`, `w8a8`, `fp16`.
        latency: as written, in `latency_unit_ns`; `None` if it is not a number.
        memory_max_bytes: upper end of the vendor's estimate.
        unit: what did most of the work: `NPU`, `GPU`, `CPU`.
        layers: how many ran on each of `UNITS`; empty if not stated.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One model folder of one release."""

    name: str
    reference: str
    jobs: tuple[Job, ...]
    facts: Row


def read_models(files: Mapping[str, bytes]) -> list[tuple[str, list[HubModel]]]:
    """The model folders of each release, oldest first; files are relative path to content.

    A release is a folder `v1.2.3`, or the checkout whose `_version.py` is among the files.

    Raises:
        AnalysisError: no `perf.yaml`, or one that is not YAML.
    """
    releases: dict[str, list[HubModel]] = defaultdict(list)
    for path in sorted(files):
        if PurePosixPath(path).name == "perf.yaml" and not _TESTS & {*PurePosixPath(path).parts}:
            releases[_release_of(path, files)].append(_read_model(path, files))
    if not releases:
        raise AnalysisError(
            "no perf.yaml of AI Hub", "name a checkout of ai-hub-models, or a folder of models"
        )
    return sorted(releases.items(), key=lambda item: _order(item[0]))


def _release_of(path: str, files: Mapping[str, bytes]) -> str:
    for part in PurePosixPath(path).parts:
        if _RELEASE_FOLDER.fullmatch(part):
            return part
    for name, content in files.items():
        if PurePosixPath(name).name == "_version.py" and (
            match := _VERSION.search(content.decode(errors="replace"))
        ):
            return f"v{match[1]}"
    return "unknown"


def _order(version: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)), version


def _read_model(path: str, files: Mapping[str, bytes]) -> HubModel:
    folder = PurePosixPath(path).parent
    beside = {
        name: node(_yaml(str(folder / name), files.get(str(folder / name), b"")))
        for name in ("info.yaml", "numerics.yaml")
    }
    return HubModel(
        name=folder.name,
        reference=file_reference(f"{folder.name}/perf.yaml", files[path]),
        jobs=tuple(read_jobs(_yaml(path, files[path]))),
        facts=_info_facts(beside["info.yaml"]) | _accuracy(beside["numerics.yaml"]),
    )


def _yaml(path: str, content: bytes) -> object:
    import yaml

    # The loader in C is ten times faster, but not every wheel has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        check_events(yaml.parse(content, Loader=loader), path, RECORD)
        return yaml.load(content, Loader=loader)  # noqa: S506
    except BadFileError as error:
        raise AnalysisError(error.message, "fetch it again") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        # PyYAML lets through what its conversions raise: a 13th month, `!!bool maybe`.
        raise AnalysisError(
            f"{path} is not YAML: {shortened(str(error), 300)}", "fetch it again"
        ) from error


def _info_facts(info: Mapping[str, object]) -> Row:
    details = node(info.get("technical_details"))
    sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(details.get("Input resolution")))
    count = re.fullmatch(r"([\d.]+)([KMB])", str(details.get("Number of parameters")))
    square = sizes is not None and sizes[1] == sizes[2]
    parameters = None if count is None else whole(read_number(count[1]), _UNITS[count[2]])
    return {
        "input_size": int(sizes[1]) if sizes is not None and square else None,
        "parameters": parameters,
    }


def _accuracy(numerics: Mapping[str, object]) -> Row:
    """Top-1 of the float model, as tested by the vendor on part of ImageNet."""
    metrics = numerics.get("metrics")
    for entry in metrics if isinstance(metrics, list) else []:
        metric = node(entry)
        top1 = read_number(metric.get("partial_torch_metric"))
        if "imagenet" in str(metric.get("dataset_name")) and top1 is not None:
            n = metric.get("num_partial_samples")
            source = f"AI Hub numerics.yaml: float model on {n} images of ImageNet"
            return {"accuracy_top1": top1, "accuracy_source": source}
    return {}


def read_jobs(document: object) -> list[Job]:
    """Every measured job of a `perf.yaml` in either layout; nothing for other content."""
    root = node(document)
    return list(_old_jobs(root)) if "models" in root else list(_new_jobs(root))


def node(value: object) -> Node:
    """A mapping unchanged, or an empty one for other values: published files have many errors."""
    return {str(key): entry for key, entry in value.items()} if isinstance(value, Mapping) else {}


def _new_jobs(root: Node) -> Iterator[Job]:
    for precision, entry in node(root.get("precisions")).items():
        components = node(node(entry).get("components"))
        for component, parts in components.items():
            for device, paths in node(node(parts).get("performance_metrics")).items():
                for path, job in node(paths).items():
                    yield _new_job(node(job), (component, len(components)), device, path, precision)


def _new_job(job: Node, component: tuple[str, int], device: str, path: str, precision: str) -> Job:
    memory = node(job.get("estimated_peak_memory_range_mb"))
    layers = node(job.get("layer_counts"))
    return Job(
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
        tools={name: str(version) for name, version in node(job.get("tool_versions")).items()},
    )


def _old_jobs(root: Node) -> Iterator[Job]:
    models = root["models"]
    components = [node(entry) for entry in models] if isinstance(models, list) else []
    for component in components:
        metrics = component.get("performance_metrics")
        for place in metrics if isinstance(metrics, list) else []:
            about = node(node(place).get("reference_device_info"))
            for path, entry in node(place).items():
                job = node(entry)
                if "inference_time" in job:
                    yield _old_job(job, (str(component.get("name")), len(components)), path, about,
                                   _word(node(place).get("timestamp")))  # fmt: skip


def _old_job(
    job: Node, component: tuple[str, int], path: str, about: Node, timestamp: str | None
) -> Job:
    memory = node(job.get("estimated_peak_memory_range"))
    layers = node(job.get("layer_info"))
    system = [word for name in ("os_name", "os") if (word := _word(about.get(name)))]
    return Job(
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
