"""The two layouts of AI Hub's `perf.yaml`, read into the same jobs.

Source: quic/ai-hub-models, `qai_hub_models/models/*/perf.yaml`. Up to about v0.20: `models` is a
list, microseconds, bytes, missing is the word `null`. Later: `precisions` > `components` >
`performance_metrics`, milliseconds, whole MiB under the name `_mb`. Devices under
`supported_devices` were not measured; only those under `performance_metrics` were.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleetrank.analysis.importers.release import read_number
from fleetrank.analysis.stored.columns import NS_PER_MS

_NS_PER_US = 1e3
BYTES_PER_MIB = 2**20
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
        layers=_counts({name: layers.get(name) for name in ("npu", "gpu", "cpu")}),
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
        latency_unit_ns=_NS_PER_US,
        memory_min_bytes=read_number(memory.get("min")),
        memory_max_bytes=read_number(memory.get("max")),
        unit=_word(job.get("primary_compute_unit")) or "",
        layers=_counts({name: layers.get(f"layers_on_{name}") for name in ("npu", "gpu", "cpu")}),
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
    numbers = {name: read_number(value) for name, value in values.items()}
    return {name: int(number) for name, number in numbers.items() if number}
