"""Estimates how long a plan takes; pure functions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import Format, Precision, Runtime
from fleetrank.foundation.workload import WorkloadKind
from fleetrank.models.cards.card import ExportRequest, Source
from fleetrank.models.cards.input_size import INPUT_SIZE
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.networks.known_cost import known_cost
from fleetrank.models.networks.language_cost import VALUE_BYTES, call_cost, calls_of
from fleetrank.models.networks.primer import primer_request
from fleetrank.orchestrator.identity import Cell, DevicePlace, Plan

_SLOWEST_START_S = 3.5
"""Also used for a runtime that has not been timed."""
_START_S = {
    Runtime.ONNX: 0.5, Runtime.TFLITE: 0.5, Runtime.TORCH: _SLOWEST_START_S,
    Runtime.EXECUTORCH: _SLOWEST_START_S,
}  # fmt: skip
"""Process start, imports and primer. Seen: 0.3 to 0.7 s for ONNX Runtime and LiteRT, 3 to 4 s for
PyTorch."""
_LOAD_S_PER_MILLION = 0.017
"""Hashing, copying and loading the file, for each million parameters. Seen with six decoders up to
135 million parameters: 0.018 s in ONNX Runtime, 0.011 in LiteRT, 0.02 in PyTorch."""
_BETWEEN_S = 0.2
"""From the end of a repeat to the start of the next: seen 0.14 to 0.31 s."""
_WARMUP = 1.5
"""Most warm-ups end at their minimum, the others at twice of it."""
_GMACS_PER_S = 30.0
"""One thread; seen over six networks in three runtimes: 20 to 60, ONNX Runtime and LiteRT."""
_GB_PER_S = 6.0
"""Weights and cache that one core reads; seen with decoders of 15 and 135 million parameters in
ONNX Runtime: 8 and 6."""
_RUNS = 1.5
"""Timed runs relative to their minimum. Seen: 1 to 3 times until the half-width is below 1 %."""
_BOOKKEEPING_S = 0.0015
"""A repeat on a simulated device, beside its own duration: seen 1,300 repeats in 1.3 s on an idle
core, in 2.5 s on a busy host."""
RAY_S = 8.0
"""Starting and ending a Ray of this host, beside the repeats.

A simulated study of 1,300 repeats took 9.7 s longer with Ray on one idle core, 7 s on an idle host,
and 28 s with five times more work than cores.
"""

_USUAL = (1.7, 10.4)
"""10^9 MACs and 10^6 parameters of a model of unknown size: the means of the built-in ones."""
_PASSES_OF_A_STEP = 3
"""The backward pass has two products for each one of the forward pass."""
_USUAL_SIZE = 224
"""Pixels of most models: MACs of a convolution grow with the area of the image."""

_EXPORT_S = {Format.ONNX: 7.0, Format.PT2: 8.0, Format.TFLITE: 12.0, Format.PTE: 18.0}
"""Seeding, export and verification of a network without parameters, in seconds of one core.

Source: SqueezeNet took 10, 13, 18 and 28 s, and ConvNeXt (28.6 million parameters) 41 s in ONNX and
36 s as .pt2, on a host with three times more work than cores; on 2 idle cores SqueezeNet took 6 to
9 s in ONNX.
"""
_EXPORT_S_PER_MILLION = 0.7
"""For each million parameters; from the same pairs."""
_LANGUAGE_EXPORT_S = {Format.ONNX: 1.0, Format.PT2: 0.6, Format.TFLITE: 2.8, Format.PTE: 6.5}
"""Of a language model, for each layer and each graph of the file, in seconds of one core.

Source: processor time of exports for `decode@128` of decoders with 5 layers (0.26 million
parameters), 6 (15 million) and 30 (135 million): ONNX 12, 14 and 38 s; .pt2 6, 8 and 23 s; TFLite
23, 21 and 89 s; .pte 43, 44 and 237 s. Layers count more than parameters.
"""
_LANGUAGE_EXPORT_S_PER_MILLION = 0.05
"""Beside that, for each million parameters: seeding, writing and hashing."""
_SLOWEST_EXPORT_S = max(_EXPORT_S.values())
"""Used for a format that has not been timed."""
_GRAPHS_OF_GENERATE = {Format.TFLITE: 2, Format.PTE: 2}
"""One for the prompt, one for a step; the other formats have one graph for both."""
_LEAST_LIMIT_S = 900.0
"""The slowest of the 39 exports of built-in networks of images takes 16 s on two idle cores."""
_LIMIT = 20
"""Time limit of an export relative to its estimate: a host can have many times more work than
cores, and seconds of a slow core can be several of those above."""
_LEAST_EXPORT_S = 5.0
"""A primer that is made: process and imports. Timed the same way."""
_CHECK_S = 2.0
"""A file that is only checked. Seen: 1 to 2 s with three times more work than cores."""


def measuring_s(
    plan: Plan, history: Mapping[str, float], places: Mapping[str, DevicePlace]
) -> float | None:
    """Seconds that the plan's repeats take if no repeat fails; `None` without cells.

    A repeat on a simulated device takes the device's own duration. A cell that was measured before
    takes its earlier time (`history`: cell key to seconds of one repeat). Any other cell is
    estimated from the size of its model and the policy. Phones run in parallel, so the slowest
    phone counts. Devices that need a quiet host run alone on it.
    """
    if not plan.cells:
        return None
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    n_simulated: dict[str, int] = defaultdict(int)
    for cell in plan.cells:
        place = places[cell.device]
        repeat_s = place.repeat_s
        if repeat_s is None:
            repeat_s = _repeat_s(cell, plan, place, history)
            repeat_s += _BETWEEN_S
        else:
            n_simulated[place.host] += plan.least_repeats
        seconds[place.host][cell.device] += repeat_s * plan.least_repeats
    longest_s = 0.0
    for host, by_device in seconds.items():
        alone = [one_s for name, one_s in by_device.items() if places[name].needs_quiet]
        beside = [one_s for name, one_s in by_device.items() if not places[name].needs_quiet]
        host_s = sum(alone) + max(beside, default=0.0) + _BOOKKEEPING_S * n_simulated[host]
        longest_s = max(longest_s, host_s)
    return longest_s


def exporting_s(missing: Iterable[ExportRequest], cores: float) -> float:
    """Seconds to export and verify the missing files.

    Args:
        missing: the files that are not in the cache.
        cores: of this host that are idle, at least 1; each export keeps one busy.
    """
    seconds = [_export_s(request) for request in missing]
    return max(sum(seconds) / cores, max(seconds, default=0.0))


def export_limit_s(request: ExportRequest) -> float:
    """The time after which an export, or its verification, is stopped."""
    return max(_LEAST_LIMIT_S, _LIMIT * _export_s(request))


def disk_bytes(missing: Iterable[ExportRequest]) -> int:
    """Size of the missing files: their weights. Copies of users' files are not counted."""
    return sum(_file_bytes(request) for request in missing)


def copy_bytes(request: ExportRequest) -> int:
    """What one process of a model needs at least: its weights, and the cache of a decoder."""
    shape, calls = request.card.language, calls_of(request.workload)
    if shape is None or not calls:
        return _file_bytes(request)
    value_bytes = VALUE_BYTES.get(request.precision, VALUE_BYTES[Precision.FP32])
    cost = call_cost(shape, calls[-1], request.batch, value_bytes)
    return cost.weight_bytes + cost.state_bytes


def _file_bytes(request: ExportRequest) -> int:
    if request.card.source is Source.FILE or request == primer_request(request.format):
        return 0
    n_weights, shape = round(_size_of(request)[1] * 1e6), request.card.language
    if shape is not None and shape.is_tied and request.format is Format.PTE:
        # XNNPACK packs the head, and the token table is stored beside it.
        n_weights += shape.vocabulary * shape.table_width
    return VALUE_BYTES.get(request.precision, VALUE_BYTES[Precision.FP32]) * n_weights


def _export_s(request: ExportRequest) -> float:
    if request.card.source is Source.FILE:
        return _CHECK_S
    if request == primer_request(request.format):
        return _LEAST_EXPORT_S
    _, millions = _size_of(request)
    least_s = _EXPORT_S.get(request.format, _SLOWEST_EXPORT_S)
    shape = request.card.language
    if shape is None:
        return least_s + _EXPORT_S_PER_MILLION * millions
    is_loop = request.workload.kind is WorkloadKind.GENERATE
    graphs = _GRAPHS_OF_GENERATE.get(request.format, 1) if is_loop else 1
    if calls := calls_of(request.workload):
        graphs *= len(calls[-1].passes)  # the blocks are written once for each pass
    layer_s = _LANGUAGE_EXPORT_S.get(request.format, max(_LANGUAGE_EXPORT_S.values()))
    per_graph_s = layer_s * shape.layers + _LANGUAGE_EXPORT_S_PER_MILLION * millions
    return _LEAST_EXPORT_S + graphs * per_graph_s


def _size_of(request: ExportRequest) -> tuple[float, float]:
    """10^9 MACs and 10^6 parameters of a model, as its card states them or as they are known."""
    card = request.card
    if card.language is not None and (calls := calls_of(request.workload)):
        sample = call_cost(card.language, calls[-1])
        return sample.macs / 1e9, sample.parameters / 1e6
    known, usual = known_cost(request.model.sized_from or card), _USUAL
    if known is not None and known.macs is not None and known.parameters is not None:
        usual = known.macs / 1e9, known.parameters / 1e6
    growth = (dict(request.axes).get(INPUT_SIZE, _USUAL_SIZE) / _USUAL_SIZE) ** 2
    return (
        growth * usual[0] if card.macs is None else card.macs / 1e9,
        usual[1] if card.parameters is None else card.parameters / 1e6,
    )


def _repeat_s(cell: Cell, plan: Plan, place: DevicePlace, history: Mapping[str, float]) -> float:
    """Seconds of one repeat: as before, or start, first inference, warm-up and timed part.

    Warm-up and timed part end at their limits, but not before one inference. In rounds the timed
    part is of as many blocks as the mean of their limits. Energy has two windows, one of them idle.
    """
    policy, known_s = plan.policy, history.get(cell.cell_key)
    # Negative: the clock was set back during the repeat. A sustained one takes its own time.
    if known_s is not None and known_s > 0 and policy.min_time_s == 0:
        return known_s
    run_s = _inference_s(cell.export, cell.execution)
    watched_s = max(_RUNS * policy.min_runs * run_s, policy.min_observed_s)
    if (blocks := plan.rounds) is not None and place.takes_turns:
        block_s = max(blocks.block_s, run_s) + blocks.left_out_runs * run_s
        watched_s = (blocks.min_blocks + blocks.max_blocks) / 2 * block_s
    timed_s = policy.min_time_s or min(watched_s, policy.max_time_s)
    least_s = max(_WARMUP * policy.min_warmup_s, policy.min_warmup_runs * run_s)
    warmup_s = min(least_s, policy.max_warmup_s)
    energy_s = 2 * policy.energy_s if place.counts_energy else 0.0
    return (
        _START_S.get(cell.execution.runtime, _SLOWEST_START_S)
        + _LOAD_S_PER_MILLION * _size_of(cell.export)[1]
        + run_s
        + max(warmup_s, run_s)
        + max(timed_s, run_s)
        + energy_s
    )


def _inference_s(request: ExportRequest, execution: Execution) -> float:
    """One inference, one step of training, or one whole sequence of `generate`, on its threads."""
    passes = _PASSES_OF_A_STEP if request.workload.kind is WorkloadKind.TRAIN else 1
    shape = request.card.language
    if shape is None:
        return passes * _run_s(execution, _size_of(request)[0])
    return passes * _language_run_s(shape, execution)


def why_not_sustained(
    request: ExportRequest, execution: Execution, min_time_s: float, *, is_cpu: bool
) -> str | None:
    """The reason why runs for `min_time_s` measure no throughput; `None` if they may.

    One inference, by its estimate on a CPU, must end within the time; of other devices nothing is
    known. 0 asks for no such runs.
    """
    if min_time_s == 0:
        return None
    if execution.workload.kind is WorkloadKind.GENERATE:
        return "min_time_s repeats one inference: give prefill and decode in place of generate"
    run_s = _inference_s(request, execution) if is_cpu else 0.0
    if run_s <= min_time_s:
        return None
    smaller = [1 << n for n in range(execution.batch.bit_length()) if 1 << n < execution.batch]
    fits = [b for b in smaller if _inference_s(request, replace(execution, batch=b)) <= min_time_s]
    remedy = f"batch {fits[-1]} fits" if fits else "no smaller batch fits: raise min_time_s"
    return (
        f"one inference takes about {run_s:,.0f} s by an estimate, longer than min_time_s "
        f"{min_time_s:g}: {remedy}"
    )


def _run_s(execution: Execution, gmacs: float) -> float:
    return gmacs * execution.batch / (_GMACS_PER_S * execution.threads)


def _language_run_s(shape: LanguageShape, execution: Execution) -> float:
    """One inference, or one whole sequence of `generate`: products, or reading if it is slower."""
    workload, calls = execution.workload, calls_of(execution.workload)
    costs = [call_cost(shape, call, execution.batch) for call in calls]
    seconds = [
        max(_run_s(execution, cost.macs / 1e9), cost.bytes_moved / (1e9 * _GB_PER_S))
        for cost in costs
    ]
    n_steps = (workload.generated or 1) - 1
    return seconds[0] + (n_steps * seconds[-1] if len(seconds) > 1 else 0.0)
