"""A measured column is a line in `columns` and a field in `measurement`; neither is forgotten."""

import dataclasses
from collections.abc import Iterator
from dataclasses import fields, replace
from operator import attrgetter

import pytest

from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.device_agents.contract.measurement import (
    Block,
    Conditions,
    Energy,
    Failure,
    Measurement,
    ToolSummary,
    WorkerFacts,
)
from fleetrank.foundation.vocabulary import EnergyMethod, ErrorKind, Origin, Statistic, Status
from fleetrank.orchestrator.rows import FROM_SEVERAL, SUMMARIES, condition_columns, measured_columns

PARTS = {
    "failure": Failure(
        kind=ErrorKind.CRASHED, message="m", remedy="r", is_transient=False, exit_code=0
    ),
    "energy": Energy(
        method=next(iter(EnergyMethod)),
        per_inference_mj=1.0,
        above_idle_mj=None,
        idle_power_mw=0.0,
        window_ns=3,
        runs=4,
        counter_steps=5,
    ),
    "worker": WorkerFacts(settings=(("b", 1), ("a", 2)), affinity=(0, 2), niceness=0),
    "conditions_before": Conditions(load_1min=0.0),
    "conditions_after": Conditions(is_charging=False, governor="g"),
}
NOT_A_COLUMN = {"task_id", "summary", "blocks", "profile", "replicas", *PARTS}
NOT_STORED = {"failure.wait"}
"""A device that asks for time: no attempt ended, so there is no row."""
FULL = Measurement(
    task_id="t",
    status=Status.OK,
    origin=Origin.MEASURED,
    samples_ns=(3, 1),
    load_ns=0,
    packages=("a 1.0",),
    **PARTS,  # type: ignore[arg-type]
)


def _paths() -> Iterator[str]:
    yield from (field.name for field in fields(Measurement) if field.name not in NOT_A_COLUMN)
    for part, value in PARTS.items():
        names = {field.name for field in fields(value)}
        is_state = part.startswith("conditions")
        paths = (f"{part}.{name}" for name in names - ({*FROM_SEVERAL} if is_state else set()))
        yield from (path for path in paths if path not in NOT_STORED)


def test_each_field_of_a_measurement_has_one_column() -> None:
    stored = [column.field for column in COLUMNS if column.field is not None]
    assert sorted(stored) == sorted(_paths())


@pytest.mark.parametrize("column", [one for one in COLUMNS if one.field], ids=lambda one: one.name)
def test_a_column_has_the_value_of_its_field(column) -> None:
    value = attrgetter(column.field)(FULL)
    stored = measured_columns(FULL)[column.name]
    assert (stored is None) is (value is None)
    if isinstance(value, int | float) or (isinstance(value, str) and column.values is None):
        assert stored == value
        assert type(stored) is type(value)
    if column.values is not None and isinstance(stored, str):
        assert stored in column.values
        assert type(stored) is str


def test_values_that_are_not_plain_are_stored_as_text_or_lists() -> None:
    columns = measured_columns(FULL)
    assert columns["runtime_settings"] == '{"a":2,"b":1}'
    assert columns["worker_affinity"] == "0,2"
    assert columns["samples_ns"] == [3, 1]
    assert columns["flags"] == []
    bare = Measurement(task_id="t", status=Status.FAILED, origin=Origin.MEASURED)
    assert measured_columns(bare)["samples_ns"] is None
    assert measured_columns(bare).keys() == columns.keys()


def test_the_first_known_of_several_sources_counts() -> None:
    assert condition_columns(FULL, None) == {"clock_max_mhz": None, "governor": "g"}


def test_a_tools_summary_counts_only_without_samples() -> None:
    summary = ToolSummary(latency_ns=7, statistic=Statistic.MEAN, count=2)
    tool = Measurement(
        task_id="t", status=Status.OK, origin=Origin.MEASURED, samples_ns=(), summary=summary
    )
    found = measured_columns(tool)
    assert [found[name] for name in SUMMARIES] == [2, 7.0, None, None, None, None, None]
    assert found["statistic"] == "mean"
    sampled = measured_columns(dataclasses.replace(tool, samples_ns=(1, 2, 9)))
    assert (sampled["latency_p50_ns"], sampled["statistic"]) == (2.0, "median")
    failed = dataclasses.replace(tool, status=Status.FAILED, summary=None)
    assert measured_columns(failed)["statistic"] is None


def test_the_blocks_of_a_round_are_lists_beside_its_samples() -> None:
    blocks = (
        Block(start_ns=5, samples=2, left_out_ns=(9, 8)),
        Block(start_ns=50, samples=1, left_out_ns=(7,)),
    )
    row = measured_columns(replace(FULL, samples_ns=(3, 1, 2), blocks=blocks, round_id="t"))
    assert (row["design"], row["round_id"]) == ("rounds", "t")
    assert row["block_starts_ns"] == [5, 50]
    assert row["block_sample_counts"] == [2, 1]
    assert row["block_medians_ns"] == [2, 2]
    assert row["left_out_ns"] == [9, 8, 7]
    alone = measured_columns(FULL)
    assert alone["design"] == "isolated"
    assert alone["block_starts_ns"] is None
