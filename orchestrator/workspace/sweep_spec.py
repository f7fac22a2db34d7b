"""The sweep specification: what a person writes into `sweeps/*.yaml`."""

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
from fleetrank.device_agents.contract.vocabulary import Mode, Precision, Runtime
from fleetrank.foundation.small_file import file_sha256, resolved
from fleetrank.foundation.visible_text import shortened
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
"""Those of the study; any other is measured where it is asked for by name."""


_DEFAULT = MeasurePolicy()


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasureSpec(_Spec):
    """When warming up and timing end; fields as in `device_agents.contract.task.MeasurePolicy`."""

    min_warmup_runs: Count = Field(
        default=_DEFAULT.min_warmup_runs, description="warm up for at least so many runs"
    )
    min_warmup_s: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = Field(
        default=_DEFAULT.min_warmup_s, description="and for at least so long"
    )
    warmup_tolerance: Share = Field(
        default=_DEFAULT.warmup_tolerance,
        description="then until the means of both halves differ by no more than this share",
    )
    max_warmup_s: Seconds = Field(
        default=_DEFAULT.max_warmup_s, description="or until this is over"
    )
    min_runs: Count = Field(
        default=_DEFAULT.min_runs,
        description="timed runs, unless max_time_s ends them first (flag too_few)",
    )
    half_width: Share = Field(
        default=_DEFAULT.half_width,
        description="stop when the 95 % half-width of the median is below this share of it",
    )
    max_time_s: Seconds = Field(default=_DEFAULT.max_time_s, description="time for at most so long")
    max_samples: Count = Field(
        default=_DEFAULT.max_samples, description="time at most so many runs"
    )
    energy_s: Annotated[float, Field(ge=0, le=LONGEST_S, strict=True, allow_inf_nan=False)] = Field(
        default=_DEFAULT.energy_s,
        description="repeat runs at least so long for energy, where it can be read; 0 for none",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_warmup_s > self.max_warmup_s:
            raise ValueError("min_warmup_s is above max_warmup_s")
        if self.min_runs > self.max_samples:
            raise ValueError("min_runs is above max_samples")
        return self

    def policy(self) -> MeasurePolicy:
        """The same as what an agent takes."""
        return MeasurePolicy(**self.model_dump())


class LimitsSpec(_Spec):
    """What one repeat may cost."""

    timeout_s: Seconds = Field(
        default=300.0, description="then the process is killed, and the repeat has failed"
    )
    memory_limit_bytes: MemoryLimit | None = Field(
        default=None,
        description="of one worker: a number, or text such as '2GiB'; else 80 % of the host's, for "
        "an NVIDIA GPU none",
    )
    max_attempts: Annotated[int, Field(ge=1, le=20, strict=True)] = Field(
        default=3, description="tries at one repeat when its failures are transient"
    )


class HostsSpec(_Spec):
    """What concerns the hosts of a cluster."""

    silent_s: Seconds = Field(
        default=30.0, description="a host that has not answered for so long is taken for lost"
    )
    wait_s: Seconds = Field(
        default=300.0,
        description="a lost host, or one that is not there yet, is waited for so long; then its "
        "devices are given up and left to a resume",
    )
    takeover: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="let an equal device measure what one that was given up has left",
    )


class PhonesSpec(_Spec):
    """What concerns phones alone."""

    clusters: OneOrMany[Literal["auto", "big", "middle", "little"]] = Field(
        default=("auto",),
        description="cores a repeat is pinned to with affinity: first_cores; auto is the fastest "
        "cluster with a core for every thread",
    )
    canary_every: Annotated[int, Field(ge=1, le=10_000, strict=True)] = Field(
        default=10, description="repeats between two runs of the canary model"
    )


class WeightsSpec(_Spec):
    """Which weights a model gets, where a word alone does not say it."""

    kind: Literal["seeded", "pretrained", "checkpoint"] = Field(
        default="seeded",
        description="random ones without a download, the published ones, or a file of yours",
    )
    seed: Seed = Field(default=0, description="of seeded weights")
    path: Path | None = Field(
        default=None, description="of a state dict (kind checkpoint), relative to this file"
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="of that file; filled in when left out"
    )

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if (self.kind == "checkpoint") != (self.path is not None):
            raise ValueError("'path' is needed with kind: checkpoint, and only then")
        return self


def _as_weights(value: object) -> object:
    """`pretrained` stands for `{kind: pretrained}`."""
    return {"kind": value} if isinstance(value, str) else value


WeightsChoice = Annotated[
    WeightsSpec, BeforeValidator(_as_weights, json_schema_input_type=str | WeightsSpec)
]


class SweepSpec(_Spec):
    """One sweep: every combination of what its lists name."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")] = Field(
        description="begins the sweep's id: small letters, digits, '-' and '_'"
    )
    description: str = Field(default="", description="for people")
    models: OneOrMany[str] = Field(description="names of models or families, or 'all'")
    runtimes: OneOrMany[Runtime] = Field(
        default=DEFAULT_RUNTIMES, description="what executes the exported file"
    )
    devices: OneOrMany[str] = Field(
        default=("local-cpu",), description="names of registered devices, or 'all'"
    )
    threads: OneOrMany[Threads] = Field(default=(1,), description="inside one operator")
    batch: OneOrMany[Count] = Field(default=(1,), description="samples in one inference")
    precision: OneOrMany[Precision] = Field(
        default=(Precision.FP32,), description="arithmetic of the artifact"
    )
    modes: dict[Runtime, OneOrMany[Mode]] = Field(
        default={}, description="per runtime; eager where it is left out"
    )
    backends: dict[Runtime, OneOrMany[str]] = Field(
        default={}, description="per runtime: execution provider or delegate"
    )
    runtime_options: dict[Runtime, dict[str, OptionSpec]] = Field(
        default={}, description="per runtime: options that differ from its default"
    )
    affinity: Affinity = Field(
        default="first_cores",
        description="pin each thread to a core of its own; or a list of CPU numbers, as many as "
        "the most threads; or 'free'",
    )
    weights: WeightsChoice = Field(default=WeightsSpec(), description="of every model")
    weights_of: dict[str, WeightsChoice] = Field(
        default={}, description="of single models, by name"
    )
    repeats: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        default=5, description="fresh processes per cell; below 5 there is no interval"
    )
    seed: Seed = Field(default=0, description="of the order of cells, and of the inputs")
    measure: MeasureSpec = Field(default=MeasureSpec(), description="when a repeat ends")
    limits: LimitsSpec = Field(default=LimitsSpec(), description="what a repeat may cost")
    phones: PhonesSpec = Field(default=PhonesSpec(), description="what concerns phones alone")
    hosts: HostsSpec = Field(default=HostsSpec(), description="hosts of a cluster")


def load_spec(path: Path) -> SweepSpec:
    """Reads a sweep specification and looks up the checkpoints it names.

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
    """Makes a checkpoint's path absolute and takes its sha256, which planning needs."""
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
            "give the right file, or leave sha256 out",
        )
    return weights.model_copy(update={"path": checkpoint, "sha256": sha256})
