"""Which repeats form a round: cells of one platform that fit into the host's memory together."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from fleetrank.models.cards.card import ExportRequest
from fleetrank.orchestrator.identity.cells import Cell, Plan, Repeat, RoundRules

FILE_COPIES = 3
"""A loaded model is assumed to take this many times its file: the file, the weights in the
runtime's own layout, and activations. Not measured."""
PROCESS_BYTES = 300 * 1024 * 1024
"""Assumed for interpreter and runtime of one worker. Not measured."""


def rounds(
    plan: Plan, rules: RoundRules, file_bytes: Mapping[ExportRequest, int]
) -> Iterator[tuple[Repeat, ...]]:
    """All first repeats as rounds in seeded random order, then all second repeats, and so on.

    The cells of a platform are dealt to new rounds for each repeat, so that every pair of models
    meets in some round.

    Args:
        plan: with the cells of one device.
        rules: how many cells a round has.
        file_bytes: size of each cell's file.
    """
    platforms: dict[object, list[Cell]] = defaultdict(list)
    for cell in plan.cells:
        platforms[_company(cell, rules)].append(cell)
    for index in range(plan.repeats):
        random = Random(f"{plan.seed}/{index}/rounds")  # noqa: S311 - an order, not a secret
        groups = [
            group
            for cells in platforms.values()
            for group in _dealt(rules, random.sample(cells, len(cells)), file_bytes)
        ]
        random.shuffle(groups)
        for group in groups:
            yield tuple(Repeat(cell=cell, index=index) for cell in group)


def _company(cell: Cell, rules: RoundRules) -> object:
    """Equal for the cells that may meet; a sequence of steps is not interrupted, so it is alone."""
    if cell.execution.workload.steps is not None:
        return cell.cell_key
    # Sizes of inputs belong to the model and not to the platform.
    return None if rules.mixes_platforms else replace(cell.execution, inputs=())


def _dealt(
    rules: RoundRules, cells: list[Cell], file_bytes: Mapping[ExportRequest, int]
) -> Iterator[list[Cell]]:
    """Deals shuffled cells to groups of nearly equal size that fit; a large cell is alone."""
    n_groups = -(-len(cells) // rules.cells)
    for number in range(n_groups):
        group: list[Cell] = []
        used = 0
        for cell in cells[number::n_groups]:
            needed = PROCESS_BYTES + FILE_COPIES * file_bytes[cell.export]
            if group and used + needed > rules.memory_bytes:
                yield group
                group, used = [], 0
            group.append(cell)
            used += needed
        yield group
