"""Converts the reading of an output to its part of a `Measurement`."""

from fleetrank.device_agents.android.runners.phone_runner import ToolReading
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.foundation.vocabulary import Origin, Status


def to_measurement(reading: ToolReading, *, task_id: str, origin: Origin) -> Measurement:
    """A good measurement without conditions, flags and times; the agent adds those."""
    return Measurement(
        task_id=task_id,
        status=Status.OK,
        origin=origin,
        sample_kind=reading.sample_kind,
        samples_ns=reading.samples_ns,
        summary=reading.summary,
        load_ns=reading.load_ns,
        first_inference_ns=reading.first_inference_ns,
        warmup_ns=reading.warmup_ns,
        warmup_runs=reading.warmup_runs,
        memory_metric=reading.memory_metric,
        load_peak_memory_bytes=reading.load_peak_memory_bytes,
        run_peak_memory_bytes=reading.run_peak_memory_bytes,
        worker=WorkerFacts(
            runtime_version=reading.runtime_version, settings=tuple(sorted(reading.settings))
        ),
    )
