"""Rounds hold cells of one platform, in any precision, that fit into memory."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from dispatch_bench import make_cell

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import Precision
from fleetrank.foundation.workload import Workload
from fleetrank.orchestrator.identity import Cell, Plan, Repeat, RoundRules, rounds

MIB = 1024**2


def plan_of(n_models: int, repeats: int) -> Plan:
    cells = tuple(make_cell("d", number) for number in range(n_models))
    return Plan(
        name="s", seed=0, repeats=repeats, policy=MeasurePolicy(), canary_every=10, cells=cells
    )


def names_of(group: tuple[Repeat, ...]) -> frozenset[str]:
    return frozenset(repeat.cell.export.card.name for repeat in group)


def dealt(plan: Plan, size: int = MIB, memory_bytes: int = 4096 * MIB) -> list[tuple[Repeat, ...]]:
    sizes = {cell.export: size for cell in plan.cells}
    rules = RoundRules(memory_bytes=memory_bytes)
    return [group for index in range(plan.repeats) for group in rounds(plan, rules, sizes, index)]


def test_every_repeat_of_every_cell_is_in_exactly_one_round() -> None:
    plan = plan_of(7, 4)
    found = dealt(plan)
    counts = Counter((r.cell.cell_key, r.index) for group in found for r in group)
    assert set(counts.values()) == {1}
    assert len(counts) == plan.n_repeats
    assert {len(group) for group in found} <= {2, 3}
    assert [group[0].index for group in found] == sorted(group[0].index for group in found)


def test_every_pair_of_models_meets_in_some_round() -> None:
    plan = plan_of(7, 20)
    met = {
        frozenset(pair)
        for group in dealt(plan)
        for pair in combinations(sorted(names_of(group)), 2)
    }
    assert len(met) == 7 * 6 / 2


def test_the_same_seed_deals_the_same_rounds() -> None:
    plan = plan_of(7, 3)
    assert dealt(plan) == dealt(plan)
    assert dealt(plan) != dealt(replace(plan, seed=1))


def test_a_round_that_would_not_fit_into_memory_is_split() -> None:
    plan = plan_of(6, 1)
    assert {len(group) for group in dealt(plan, 10 * MIB, 1500 * MIB)} == {3}
    assert {len(group) for group in dealt(plan, 300 * MIB, 1500 * MIB)} == {1}


def test_cells_of_two_platforms_never_share_a_round() -> None:
    plan = plan_of(4, 2)
    twice = tuple(
        replace(cell, cell_key=f"{cell.cell_key}-{threads}", execution=replace(
            cell.execution, threads=threads
        ))
        for cell in plan.cells for threads in (1, 2)
    )  # fmt: skip
    for group in dealt(replace(plan, cells=twice)):
        assert len({repeat.cell.execution for repeat in group}) == 1


def test_the_precisions_of_a_model_take_turns() -> None:
    plan = plan_of(1, 1)
    cells = tuple(
        replace(cell, cell_key=precision, execution=replace(cell.execution, precision=precision))
        for cell in plan.cells for precision in (Precision.FP32, Precision.INT8)
    )  # fmt: skip
    (group,) = dealt(replace(plan, cells=cells))
    assert {repeat.cell.execution.precision for repeat in group} == {"fp32", "int8"}


def with_workload(cell: Cell, text: str, size: int) -> Cell:
    ids = ModelInput(name="tokens", shape=(1, size), dtype="int64", values=Values())
    execution = replace(cell.execution, workload=Workload.parse(text), inputs=(ids,))
    return replace(cell, execution=execution)


def test_steps_of_several_models_take_turns_and_whole_sequences_do_not() -> None:
    plan = plan_of(3, 1)
    steps = tuple(with_workload(cell, "decode@64", n) for n, cell in enumerate(plan.cells))
    (group,) = dealt(replace(plan, cells=steps))
    assert len(group) == 3
    loops = tuple(with_workload(cell, "generate@32+32", n) for n, cell in enumerate(plan.cells))
    assert [len(group) for group in dealt(replace(plan, cells=loops))] == [1, 1, 1]
