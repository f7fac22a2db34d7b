"""Estimates how long a plan takes; pure functions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, Source
from fleetrank.models.networks.primer import primer_request
from fleetrank.orchestrator.identity.cells import DevicePlace, Plan

_START_S = 3.0
"""Process start, imports and load: 0.5 s for ONNX Runtime, 3 to 4 s for PyTorch (2 cores)."""

_EXPORT_S = {Format.ONNX: 8.0, Format.PT2: 8.0, Format.TFLITE: 12.0, Format.PTE: 20.0}
"""Seeding, export and verification of one model; the mean over the 13 built-in models.

Source: timed on 2 idle cores, two side by side: ONNX 6 to 9 s, .pt2 6 to 9, TFLite 8 to 16.
"""
_SLOWEST_EXPORT_S = max(_EXPORT_S.values())
"""Used for a format that has not been timed."""
_LEAST_EXPORT_S = 5.0
"""A primer, or a user's file that is only checked: process and imports. Timed the same way."""
_SIDE_BY_SIDE = 2
"""Exports side by side, as when they were timed; more cores are faster by an unknown factor."""


def measuring_s(
    plan: Plan, history: Mapping[str, float], places: Mapping[str, DevicePlace]
) -> float | None:
    """Seconds that the plan's repeats take if no repeat fails; `None` without cells.

    A cell that was measured before takes its earlier time (`history`: cell key to seconds of one
    repeat). Any other cell takes the maximum that the policy allows. Phones run in parallel, so
    the slowest phone counts. Devices that need a quiet host run alone on it.
    """
    if not plan.cells:
        return None
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for cell in plan.cells:
        place = places[cell.device]
        repeat_s = history.get(cell.cell_key)
        if repeat_s is None or repeat_s <= 0:  # negative: the clock was set back during the repeat
            repeat_s = _longest_repeat_s(plan.policy, counts_energy=place.counts_energy)
        seconds[place.host][cell.device] += repeat_s * plan.repeats
    return max(_host_s(by_device, places) for by_device in seconds.values())


def _host_s(by_device: Mapping[str, float], places: Mapping[str, DevicePlace]) -> float:
    alone = [seconds for name, seconds in by_device.items() if places[name].needs_quiet]
    beside = [seconds for name, seconds in by_device.items() if not places[name].needs_quiet]
    return sum(alone) + max(beside, default=0.0)


def exporting_s(missing: Iterable[ExportRequest]) -> float:
    """Seconds to export and verify the missing files, based on times of the built-in models."""
    seconds = [_export_s(request) for request in missing]
    return max(sum(seconds) / _SIDE_BY_SIDE, max(seconds, default=0.0))


def _export_s(request: ExportRequest) -> float:
    is_small = request.card.source is Source.FILE or request == primer_request(request.format)
    return _LEAST_EXPORT_S if is_small else _EXPORT_S.get(request.format, _SLOWEST_EXPORT_S)


def _longest_repeat_s(policy: MeasurePolicy, *, counts_energy: bool) -> float:
    """Seconds of one repeat: the minimum warm-up plus the maximum timed part.

    Most warm-ups settle soon after their minimum. Energy has two windows, one of them idle.
    """
    energy_s = 2 * policy.energy_s if counts_energy else 0.0
    return _START_S + 2 * policy.min_warmup_s + policy.max_time_s + energy_s
