"""The sweep specification: the content of `sweeps/*.yaml`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.small_file import file_sha256, resolved
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.spec_values import (
    LONGEST_S,
    Affinity,
    Count,
    MemoryLimit,
    OneOrMany,
    OptionSpec,
    Seconds,
    Seed,
    Share,
    Threads,
)
from fleetrank.orchestrator.workspace.yaml_file import parse_file

DEFAULT_RUNTIMES = (Runtime.ONNX, Runtime.TORCH, Runtime.TFLITE)
"""The default runtimes; any other is measured only if a sweep names it."""


_DEFAULT = MeasurePolicy()


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasureSpec(_Spec):
    """When warm-up and timing end; fields as in `device_agents.contract.task.MeasurePolicy`."""

    min_warmup_runs: Count = Field(
        default=_DEFAULT.min_warmup_runs, description="minimum number of warm-up runs"
    )
    min_warmup_s: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = Field(
        default=_DEFAULT.min_warmup_s, description="minimum warm-up time"
    )
    warmup_tolerance: Share = Field(
        default=_DEFAULT.warmup_tolerance,
        description="warm-up ends when the means of its halves differ by at most this fraction",
    )
    max_warmup_s: Seconds = Field(default=_DEFAULT.max_warmup_s, description="maximum warm-up time")
    min_runs: Count = Field(
        default=_DEFAULT.min_runs,
        description="minimum timed runs, unless max_time_s ends them first (flag too_few)",
    )
    half_width: Share = Field(
        default=_DEFAULT.half_width,
        description="stop when the 95 % half-width of the median is below this fraction of it",
    )
    max_time_s: Seconds = Field(
        default=_DEFAULT.max_time_s, description="maximum time of the timed runs"
    )
    max_samples: Count = Field(
        default=_DEFAULT.max_samples, description="maximum number of timed runs"
    )
    energy_s: Annotated[float, Field(ge=0, le=LONGEST_S, strict=True, allow_inf_nan=False)] = Field(
        default=_DEFAULT.energy_s,
        description="minimum time of runs for energy, if it can be read; 0 measures no energy",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_warmup_s > self.max_warmup_s:
            raise ValueError("min_warmup_s is above max_warmup_s")
        if self.min_runs > self.max_samples:
            raise ValueError("min_runs is above max_samples")
        return self

    def policy(self) -> MeasurePolicy:
        """The policy in the form that an agent takes."""
        return MeasurePolicy(**self.model_dump())


class LimitsSpec(_Spec):
    """Limits of one repeat."""

    timeout_s: Seconds = Field(
        default=300.0, description="after this time the process is killed and the repeat has failed"
    )
    memory_limit_bytes: MemoryLimit | None = Field(
        default=None,
        description="memory of one worker: a number, or text such as '2GiB' (default: 80 % of the "
        "host's; no limit for an NVIDIA GPU)",
    )
    max_attempts: Annotated[int, Field(ge=1, le=20, strict=True)] = Field(
        default=3, description="maximum tries of one repeat when its failures are transient"
    )


class HostsSpec(_Spec):
    """Settings for the hosts of a cluster."""

    silent_s: Seconds = Field(
        default=30.0, description="a host that has not answered for this time is considered lost"
    )
    wait_s: Seconds = Field(
        default=300.0,
        description="maximum wait for a lost or not yet available host; then its devices are "
        "abandoned and left to a resume",
    )
    takeover: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="let an equal device measure the pending repeats of an abandoned device",
    )


class PhonesSpec(_Spec):
    """Settings for phones only."""

    clusters: OneOrMany[Literal["auto", "big", "middle", "little"]] = Field(
        default=("auto",),
        description="cluster that a repeat is pinned to with affinity: first_cores; auto is the "
        "fastest cluster with a core for every thread",
    )
    canary_every: Annotated[int, Field(ge=1, le=10_000, strict=True)] = Field(
        default=10, description="number of repeats between two runs of the canary model"
    )


class WeightsSpec(_Spec):
    """The weights of a model, for cases that a single word does not describe."""

    kind: Literal["seeded", "pretrained", "checkpoint"] = Field(
        default="seeded",
        description="random (no download), published, or from your own file",
    )
    seed: Seed = Field(default=0, description="random seed of seeded weights")
    path: Path | None = Field(
        default=None, description="path of a state dict (kind checkpoint), relative to this file"
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="hash of that file; computed if omitted"
    )

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if (self.kind == "checkpoint") != (self.path is not None):
            raise ValueError("'path' is required with kind: checkpoint and not allowed otherwise")
        return self


def _as_weights(value: object) -> object:
    """Accepts `pretrained` as short for `{kind: pretrained}`."""
    return {"kind": value} if isinstance(value, str) else value


WeightsChoice = Annotated[
    WeightsSpec, BeforeValidator(_as_weights, json_schema_input_type=str | WeightsSpec)
]


class SweepSpec(_Spec):
    """One sweep: every combination of the values in its lists."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")] = Field(
        description="start of the sweep's id: lower-case letters, digits, '-' and '_'"
    )
    description: str = Field(default="", description="free text, not used")
    models: OneOrMany[str] = Field(description="names of models or families, or 'all'")
    runtimes: OneOrMany[Runtime] = Field(
        default=DEFAULT_RUNTIMES, description="runtimes that execute the exported file"
    )
    devices: OneOrMany[str] = Field(
        default=("local-cpu",), description="names of registered devices, or 'all'"
    )
    threads: OneOrMany[Threads] = Field(default=(1,), description="threads inside one operator")
    batch: OneOrMany[Count] = Field(default=(1,), description="samples in one inference")
    precision: OneOrMany[Precision] = Field(
        default=(Precision.FP32,), description="numeric type of the artifact"
    )
    modes: dict[Runtime, OneOrMany[Mode]] = Field(
        default={}, description="execution modes per runtime (default: eager)"
    )
    backends: dict[Runtime, OneOrMany[str]] = Field(
        default={}, description="execution provider or delegate, per runtime"
    )
    runtime_options: dict[Runtime, dict[str, OptionSpec]] = Field(
        default={}, description="options that differ from the default, per runtime"
    )
    affinity: Affinity = Field(
        default="first_cores",
        description="first_cores pins each thread to its own core; or a list of CPU numbers, one "
        "for each of the most threads; or 'free'",
    )
    weights: WeightsChoice = Field(default=WeightsSpec(), description="weights of every model")
    weights_of: dict[str, WeightsChoice] = Field(
        default={}, description="weights of single models, by name"
    )
    repeats: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        default=5, description="new processes per cell; below 5, figures have no interval"
    )
    seed: Seed = Field(default=0, description="random seed of the cell order and the inputs")
    measure: MeasureSpec = Field(default=MeasureSpec(), description="when a repeat ends")
    limits: LimitsSpec = Field(default=LimitsSpec(), description="limits of a repeat")
    phones: PhonesSpec = Field(default=PhonesSpec(), description="settings for phones only")
    hosts: HostsSpec = Field(default=HostsSpec(), description="settings for the hosts of a cluster")


def load_spec(path: Path) -> SweepSpec:
    """Reads a sweep specification and hashes the checkpoints that it names.

    Raises:
        UsageError: names the file, the key, the nearest valid key and the remedy.
    """
    spec = parse_file(path, SweepSpec)
    return spec.model_copy(
        update={
            "weights": _resolve(spec.weights, path, "weights"),
            "weights_of": {
                model: _resolve(weights, path, f"weights_of.{model}")
                for model, weights in spec.weights_of.items()
            },
        }
    )


def _resolve(weights: WeightsSpec, spec_path: Path, key: str) -> WeightsSpec:
    """Makes a checkpoint's path absolute and computes its sha256, which planning needs."""
    if weights.path is None:
        return weights
    try:
        checkpoint = resolved(spec_path.parent / weights.path)
        sha256 = file_sha256(checkpoint)
    except OSError as error:
        raise UsageError(
            f"{spec_path}: key '{key}.path': {shortened(str(weights.path))} cannot be read: "
            f"{error.strerror}",
            "give the path of a state dict, relative to the sweep file",
        ) from error
    if weights.sha256 not in {None, sha256}:
        raise UsageError(
            f"{spec_path}: key '{key}.sha256': {checkpoint} has the sha256 {sha256}",
            "give the right file, or remove sha256",
        )
    return weights.model_copy(update={"path": checkpoint, "sha256": sha256})
