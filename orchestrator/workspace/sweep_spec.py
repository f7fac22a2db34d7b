"""The sweep specification: the content of `sweeps/*.yaml`."""

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fleetrank.analysis.stopping_rule import BUDGET_S, FIRST_ROUNDS, MOST_ROUNDS, SweepQuestion
from fleetrank.device_agents.contract.task import (
    LONGEST_S,
    Count,
    MeasurePolicy,
    RepeatLimits,
    Seconds,
)
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import known_runtime
from fleetrank.foundation.small_file import resolved
from fleetrank.foundation.user_file import Key, plain_number
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import CALIBRATED, Mode, Precision, Runtime
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import DEFAULT_CASES, Preprocessing
from fleetrank.models.cards.inputs import AxisName, AxisSize
from fleetrank.models.errors import CardError
from fleetrank.models.published import checkpoint_sha256
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import HostRules, RoundRules
from fleetrank.orchestrator.workspace.user_shares import share_of
from fleetrank.orchestrator.workspace.yaml_file import parse_file

if TYPE_CHECKING:
    from yaml import SafeLoader as _Loader

else:
    # The C loader is ten times as fast, but not every wheel has it.
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
T = TypeVar("T")
PolicyT = TypeVar("PolicyT", MeasurePolicy, RoundRules)
DEFAULT_RUNTIMES = (Runtime.ONNX, Runtime.TORCH, Runtime.TFLITE)
"""The default runtimes; any other is measured only if a sweep names it."""


def _known(runtime: Runtime) -> Runtime:
    try:
        return known_runtime(runtime)
    except ValueError as error:
        raise PydanticCustomError("enum", "{why}", {"why": str(error)}) from error


RuntimeName = Annotated[Runtime, AfterValidator(_known)]
"""A runtime of fleetrank, or of a package that is installed here."""
_LARGEST_OPTION = 2.0**63
"""Option values are stored as JSON and in columns, whose integers have 64 bits."""


def _not_empty(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("give at least one")
    return values


def _option_value(value: object) -> object:
    """Runs before the union check, whose error message would list every type."""
    is_number = isinstance(value, int | float) and abs(value) < _LARGEST_OPTION
    if not (is_number or isinstance(value, str)):
        raise ValueError("give a number below 2^63, true, false or text")
    return value


def _affinity(value: object) -> object:
    is_cores = isinstance(value, list | tuple) and all(
        type(core) is int and 0 <= core < 2**16 for core in value
    )
    if not (value in ("first_cores", "free") or (is_cores and value)):
        raise ValueError("give first_cores, free, or a list of core numbers")
    return value


_SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    with contextlib.suppress(ValueError):
        return plain_number(text[:-1]) * _SECONDS_OF.get(text[-1:], math.nan)
    raise ValueError("give seconds, or text such as '90s', '20m' or '2h'")


OneOrMany = Annotated[
    tuple[T, ...],
    AfterValidator(_not_empty),
    # A single value is a list of one.
    BeforeValidator(
        lambda value: [value] if isinstance(value, str | int | float) else value,
        json_schema_input_type=T | list[T],
    ),
]
WorkloadSpec = Annotated[
    Workload,
    BeforeValidator(
        lambda value: Workload.parse(value) if isinstance(value, str) else value,
        json_schema_input_type=str,
    ),
    PlainSerializer(str, return_type=str),
]
OptionSpec = Annotated[bool | int | float | str, BeforeValidator(_option_value)]
Share = Annotated[
    float,
    BeforeValidator(
        lambda value: share_of(value) if isinstance(value, str) else value,
        json_schema_input_type=float | str,
    ),
]
"""A share; text such as `5%` is one too."""
Time = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str)]
"""Seconds; text such as `20m` is a time too."""
Threads = Annotated[int, Key(ge=1, le=4096)]
Seed = Annotated[int, Key(ge=0, lt=2**32)]
Affinity = Annotated[Literal["first_cores", "free"] | tuple[int, ...], BeforeValidator(_affinity)]
_Flag = Annotated[bool, Key()]


class SpecSection(BaseModel):
    """A part of a sweep file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _in_order(section: PolicyT) -> PolicyT:
    """Rejects a section whose minimum is above its maximum."""
    pairs = (("min_warmup_s", "max_warmup_s"), ("min_runs", "max_samples"),
             ("min_blocks", "max_blocks"))  # fmt: skip
    for low, high in pairs:
        if getattr(section, low, 0) > getattr(section, high, 0):
            raise ValueError(f"{low} is above {high}")
    return section


class ReplicasSpec(SpecSection):
    """Sets of processes that run one cell at the same time."""

    processes: OneOrMany[Annotated[int, Key(ge=1, le=256)]] = Field(
        description="processes of a set, such as [1, 2, 4]; 1 is what the others are compared with"
    )
    run_s: Seconds = Field(
        default=10.0, description="time that the processes of a set run back to back"
    )

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        if len(set(self.processes)) < len(self.processes):
            raise ValueError("processes names a number twice")
        return self


ReplicasChoice = Annotated[
    ReplicasSpec,
    # `[1, 2, 4]` is short for `{processes: [1, 2, 4]}`.
    BeforeValidator(
        lambda value: {"processes": value} if isinstance(value, int | list | tuple) else value,
        json_schema_input_type=int | list[int] | ReplicasSpec,
    ),
]


class PhonesSpec(SpecSection):
    """Settings for phones only."""

    clusters: OneOrMany[Literal["auto", "big", "middle", "little"]] = Field(
        default=("auto",),
        description="cluster that a repeat is pinned to with affinity: first_cores; auto is the "
        "fastest cluster with a core for every thread",
    )
    canary_every: Annotated[int, Key(ge=1, le=10_000)] = Field(
        default=10, description="number of repeats between two runs of the canary model"
    )


class WeightsSpec(SpecSection):
    """The weights of a model, for cases that a single word does not describe."""

    kind: Literal["seeded", "pretrained", "checkpoint"] = Field(
        default="seeded",
        description="random (no download), published, or from your own file",
    )
    seed: Seed = Field(default=0, description="random seed of seeded weights")
    path: Path | None = Field(
        default=None,
        description="path of a state dict, or of a language model's folder with config.json and "
        "*.safetensors (kind checkpoint); relative to this file",
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="hash of that file; computed if omitted"
    )

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if (self.kind == "checkpoint") != (self.path is not None):
            raise ValueError("'path' is required with kind: checkpoint and not allowed otherwise")
        return self


class CalibrateSpec(SpecSection):
    """What integer networks are calibrated with."""

    data: Path = Field(
        description="a folder of images, or a .npy file of shape (cases, *sizes of one case); "
        "relative to this file"
    )
    n: Annotated[int, Key(ge=2, le=100_000)] = Field(
        default=DEFAULT_CASES, description="cases used, at most"
    )
    crop: Annotated[float, Key(gt=0, le=1)] = Field(
        default=Preprocessing().crop,
        description="share of an image's shorter side that is resized to the input",
    )
    mean: OneOrMany[float] = Field(
        default=Preprocessing().mean, description="subtracted from each channel, 0 to 1"
    )
    std: OneOrMany[Annotated[float, Key(gt=0)]] = Field(
        default=Preprocessing().std, description="each channel is divided by it"
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="hash of the data; computed if omitted"
    )

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become inputs."""
        return Preprocessing(crop=self.crop, mean=tuple(self.mean), std=tuple(self.std))


WeightsChoice = Annotated[
    WeightsSpec,
    # `pretrained` is short for `{kind: pretrained}`.
    BeforeValidator(
        lambda value: {"kind": value} if isinstance(value, str) else value,
        json_schema_input_type=str | WeightsSpec,
    ),
]
RoundsChoice = Annotated[
    Annotated[RoundRules, AfterValidator(_in_order)] | None,
    # YAML reads `off` as false.
    BeforeValidator(
        lambda value: None if value in (False, "off") else value,
        json_schema_input_type=RoundRules | Literal["off", False] | None,
    ),
]


class UntilSpec(SpecSection):
    """A question that decides when the sweep stops."""

    question: SweepQuestion = Field(
        description="order of every two models of a platform, the fastest model, the frontier of "
        "latency and accuracy, or not_slower: which models are not slower than the first one"
    )
    margin: Annotated[Share, Key(gt=0, lt=1)] | None = Field(
        default=None, description="difference of no interest (default: 5%)"
    )
    budget: Annotated[Time, Key(gt=0, le=LONGEST_S)] = Field(
        default=BUDGET_S,
        description="time of measuring after which no further round begins, such as 20m",
    )
    first: Annotated[int, Key(ge=2, le=100)] = Field(
        default=FIRST_ROUNDS, description="rounds that every model takes part in"
    )


UntilChoice = Annotated[
    UntilSpec,
    # `fastest` is short for `{question: fastest}`.
    BeforeValidator(
        lambda value: {"question": value} if isinstance(value, str) else value,
        json_schema_input_type=SweepQuestion | UntilSpec,
    ),
]


class SweepSpec(SpecSection):
    """One sweep: every combination of the values in its lists."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")] = Field(
        description="start of the sweep's id: lower-case letters, digits, '-' and '_'"
    )
    description: str = Field(default="", description="free text, not used")
    models: OneOrMany[str] = Field(
        description="names of models or families, 'all' (every model that does not take tokens), "
        "or 'language' (every built-in model that does)"
    )
    workloads: OneOrMany[WorkloadSpec] | None = Field(
        default=None,
        description="what one inference of a language model does: prefill@128, decode@512, "
        "generate@128+32, segment@64+k8+n16, encode@128 (default: prefill@128 and decode@128, "
        "encode@128 of an encoder). Other models: image, and one step of training, train@8 or "
        "train@8+adamw; of a decoder train@8x128",
    )
    runtimes: OneOrMany[RuntimeName] = Field(
        default=DEFAULT_RUNTIMES,
        description="runtimes that execute the exported file; packages can add more",
    )
    devices: OneOrMany[str] = Field(
        default=("local-cpu",), description="names of registered devices, or 'all'"
    )
    threads: OneOrMany[Threads] = Field(default=(1,), description="threads inside one operator")
    batch: OneOrMany[Count] = Field(default=(1,), description="samples in one inference")
    precision: OneOrMany[Precision] | None = Field(
        default=None,
        description="numeric type of exported networks (default: fp32); a file that you exported "
        "is measured in its own",
    )
    axes: dict[AxisName, OneOrMany[AxisSize]] = Field(
        default={}, description="sizes of the named axes of models' inputs, such as seq: [128, 512]"
    )
    modes: dict[RuntimeName, OneOrMany[Mode]] = Field(
        default={}, description="execution modes per runtime (default: eager)"
    )
    backends: dict[RuntimeName, OneOrMany[str]] = Field(
        default={}, description="execution provider or delegate, per runtime"
    )
    runtime_options: dict[RuntimeName, dict[str, OptionSpec]] = Field(
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
    precision_of: dict[str, OneOrMany[Precision]] = Field(
        default={}, description="precisions of single models, by name"
    )
    calibrate: CalibrateSpec | None = Field(
        default=None,
        description="data that give networks in int8 their ranges of values (default: 16 seeded "
        "inputs)",
    )
    repeats: Annotated[int, Key(ge=1, le=1000)] = Field(
        default=5, description="new processes per cell; below 5, figures have no interval"
    )
    until: UntilChoice | None = Field(
        default=None,
        description="measure until a question is decided: after the first rounds, only models with "
        "an open decision, at most `repeats` times (default then: 20); such as fastest, or "
        "{question: order, margin: 5%, budget: 20m}",
    )
    seed: Seed = Field(default=0, description="random seed of the cell order and the inputs")
    measure: Annotated[MeasurePolicy, AfterValidator(_in_order)] = Field(
        default_factory=MeasurePolicy, description="when a repeat ends"
    )
    rounds: RoundsChoice = Field(
        default=RoundRules(),
        description="how the cells of a platform, in any precision, take turns, on devices that "
        "can hold several models at once; `off` measures one cell after the other, as does "
        "min_time_s",
    )
    profile: _Flag = Field(
        default=False,
        description="find out where the time goes: after the latencies, each cell is profiled in "
        "as many new processes; their times never count as latencies",
    )
    replicas: ReplicasChoice | None = Field(
        default=None,
        description="run each cell in several processes at once, after the latencies: [1, 2, 4] "
        "runs sets of so many; `{processes: [1, 2, 4], run_s: 10}` also states their time",
    )
    limits: RepeatLimits = Field(default=RepeatLimits(), description="limits of a repeat")
    phones: PhonesSpec = Field(default=PhonesSpec(), description="settings for phones only")
    hosts: HostRules = Field(default=HostRules(), description="settings for the hosts of devices")

    @model_validator(mode="before")
    @classmethod
    def _most_rounds(cls, content: object) -> object:
        if isinstance(content, Mapping) and content.get("until") and "repeats" not in content:
            return {**content, "repeats": MOST_ROUNDS}
        return content

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        if self.until is not None and self.repeats < self.until.first:
            raise ValueError(f"until.first {self.until.first} is above repeats {self.repeats}")
        return self

    @model_validator(mode="after")
    def _check_calibrate(self) -> Self:
        if self.calibrate is not None and CALIBRATED.isdisjoint(self.precision or ()):
            raise ValueError("calibrate is for networks in int8; add `precision: [fp32, int8]`")
        return self

    @model_validator(mode="after")
    def _check_retry(self) -> Self:
        if self.hosts.quiet == "retry" and self.rounds is None:
            raise ValueError("hosts.quiet: retry needs rounds; remove `rounds: off`")
        return self

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        run_s = 0.0 if self.replicas is None else self.replicas.run_s
        for what, name, asked_s in (
            ("repeat", "min_time_s", self.measure.min_time_s),
            ("set", "run_s", run_s),
        ):
            lasting_s = asked_s + self.measure.max_warmup_s
            if asked_s and self.limits.timeout_s <= lasting_s:
                raise ValueError(f"limits.timeout_s {self.limits.timeout_s:g} ends a {what} before "
                                 f"its warm-up and {name}, {lasting_s:g} s together, are over: "
                                 "raise timeout_s")  # fmt: skip
        return self


def load_spec(path: Path) -> SweepSpec:
    """Reads a sweep specification and hashes the checkpoints and data that it names.

    Raises:
        UsageError: names the file, the key, the nearest valid key and the remedy.
    """
    return with_checkpoints(parse_file(path, SweepSpec), path)


def with_checkpoints(spec: SweepSpec, path: Path) -> SweepSpec:
    """The specification with absolute paths and hashes of its checkpoints and calibration data.

    Args:
        spec: as written.
        path: of the file, or its name in messages; paths are relative to its folder.

    Raises:
        UsageError: a checkpoint or the data cannot be read, or are not the stated ones.
    """
    return spec.model_copy(
        update={
            "weights": _resolve(spec.weights, path, "weights"),
            "weights_of": {
                model: _resolve(weights, path, f"weights_of.{model}")
                for model, weights in spec.weights_of.items()
            },
            "calibrate": spec.calibrate and _found_data(spec.calibrate, path),
        }
    )


def _found_data(given: CalibrateSpec, spec_path: Path) -> CalibrateSpec:
    from fleetrank.models.calibration import find_calibration  # it loads NumPy

    try:
        path = resolved(spec_path.parent / given.data)
        sha256 = find_calibration(path, given.n, given.preprocessing).sha256
    except (CardError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        raise UsageError(
            f"{spec_path}: key 'calibrate.data': {shortened(str(given.data))}: {why}",
            "give a folder of images or a .npy file, relative to the sweep file",
        ) from error
    if given.sha256 not in {None, sha256}:
        raise UsageError(
            f"{spec_path}: key 'calibrate.sha256': {path} has the sha256 {sha256}",
            "give the right data, or remove sha256",
        )
    return given.model_copy(update={"data": path, "sha256": sha256})


def _resolve(weights: WeightsSpec, spec_path: Path, key: str) -> WeightsSpec:
    """Makes a checkpoint's path absolute and computes its sha256, which planning needs."""
    if weights.path is None:
        return weights
    remedy = "give the path of a state dict or of a model's folder, relative to the sweep file"
    message = f"{spec_path}: key '{key}.path': {shortened(str(weights.path))} cannot be read"
    with failing_as(UsageError, message, remedy, OSError):
        checkpoint = resolved(spec_path.parent / weights.path)
        sha256 = checkpoint_sha256(checkpoint)
    if weights.sha256 not in {None, sha256}:
        raise UsageError(
            f"{spec_path}: key '{key}.sha256': {checkpoint} has the sha256 {sha256}",
            "give the right file, or remove sha256",
        )
    return weights.model_copy(update={"path": checkpoint, "sha256": sha256})
