import json
import math
import statistics
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA, SCHEMA_VERSION
from fleetrank.device_agents.contract.measurement import (
    Conditions,
    Energy,
    Failure,
    Measurement,
    ToolSummary,
    failed,
)
from fleetrank.foundation.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Family,
    Origin,
    SampleKind,
    Statistic,
    Status,
)
from fleetrank.models.cards.card import ModelCard, ResolvedCard, Source
from fleetrank.models.cards.language import LanguageShape
from fleetrank.orchestrator.identity import DevicePlace, Repeat
from fleetrank.orchestrator.keys import canonical_json
from fleetrank.orchestrator.row_making import RowMaker
from fleetrank.orchestrator.rows import summarise
from fleetrank.orchestrator.store.health import wrong_summaries
from fleetrank.orchestrator.store.parts import to_frame
from tests.orchestrator.conftest import ARTIFACT, CELL, FACTS, FIRST, MEASUREMENT, PLACE, SWEEP


def test_a_row_has_exactly_the_columns_of_the_table(new_row) -> None:
    assert list(new_row()) == list(SCHEMA)


def test_what_was_seen_is_in_the_row(new_row) -> None:
    row = new_row()
    expected = {
        "sweep_id": "quick-20260102T030405-0a1b",
        "schema_version": SCHEMA_VERSION,
        "git_commit": None,
        "model": "resnet18",
        "weights_kind": "seeded",
        "weights_id": "seeded-0",
        "macs": 10,
        "flops": 20,
        "flops_method": "counted",
        "artifact_format": "onnx",
        "exporter_versions": '{"onnx":"1.23.2","torch":"2.13.0"}',
        "device_model": "Box 1",
        "tier": "cpu",
        "physical_cores": None,
        "affinity": "0,1",
        "worker_affinity": "0,2",
        "options": "{}",
        "status": "ok",
        "error_kind": None,
        "samples_ns": [10, 20, 30, 40],
        "device_samples_ns": None,
        "sample_count": 4,
        "latency_p50_ns": 25.0,
        "latency_mean_ns": 25.0,
        "peak_memory_bytes": 1000,
        "load_1min_before": 0.5,
        "load_1min_after": None,
        "governor": "performance",
        "clock_max_mhz": 3000.0,
        "runtime_settings": '{"threads":2}',
        "confinement": "landlock7+seccomp+audit",
        "flags": ["drift"],
    }
    assert {name: row[name] for name in expected} == expected


def test_a_closed_column_holds_only_its_words(new_row) -> None:
    row = new_row()
    for column in COLUMNS:
        if column.values is not None:
            words = row[column.name] if isinstance(row[column.name], list) else [row[column.name]]
            assert set(words) <= {*column.values, None}


def test_a_failed_export_is_a_row_without_figures(translate, first) -> None:
    failure = Failure(
        kind=ErrorKind.EXPORT_FAILED,
        message="no such operator",
        remedy="use another",
        is_transient=False,
        stage="export",
    )
    measurement = failed("t", failure, Origin.MEASURED)
    row = translate(
        attempt=replace(first, number=2), measurement=measurement, facts=None, artifact=None
    )
    assert list(row) == list(SCHEMA)
    assert (row["status"], row["error_stage"]) == ("failed", "export")
    assert row["error_kind"] == "export_failed"
    assert row["error_is_transient"] is False
    figures = ("samples_ns", "sample_count", "latency_p50_ns", "artifact_sha256", "macs", "tier")
    assert [row[name] for name in figures] == [None] * len(figures)
    assert row["started_utc"] is not None
    assert to_frame([row]).height == 1


def test_a_tools_statistics_stand_where_there_are_no_samples(translate) -> None:
    measurement = Measurement(
        task_id="t",
        status=Status.OK,
        origin=Origin.MEASURED,
        sample_kind=SampleKind.TOOL_SUMMARY,
        summary=ToolSummary(
            latency_ns=1234, statistic=Statistic.MEDIAN, count=50, mean_ns=1300, p95_ns=1500
        ),
    )
    row = translate(measurement=measurement)
    assert (row["samples_ns"], row["sample_count"]) == (None, 50)
    assert (row["latency_p50_ns"], row["latency_mean_ns"]) == (1234.0, 1300.0)
    assert (row["latency_p95_ns"], row["latency_p99_ns"]) == (1500.0, None)
    assert list(wrong_summaries(row)) == []


ENERGY = Energy(
    method=EnergyMethod.NVML_COUNTER,
    per_inference_mj=600.0,
    above_idle_mj=400.0,
    idle_power_mw=100_000.0,
    window_ns=2_000_000_000,
    runs=1000,
    counter_steps=24,
)


def test_a_gpus_energy_copy_and_overhead_have_columns(translate) -> None:
    measurement = Measurement(
        task_id="t",
        status=Status.OK,
        origin=Origin.MEASURED,
        samples_ns=(1_000_000, 1_200_000, 1_100_000),
        device_samples_ns=(900_000, 1_000_000, 950_000),
        input_copy_ns=45_000,
        energy=ENERGY,
        conditions_after=Conditions(throttle_reasons="power_cap", other_processes=1),
    )
    row = translate(measurement=measurement)
    assert (row["host_overhead_ns"], row["input_copy_ns"]) == (150_000.0, 45_000)
    assert (row["energy_mj"], row["energy_above_idle_mj"]) == (600.0, 400.0)
    assert (row["energy_runs"], row["energy_counter_steps"]) == (1000, 24)
    assert (row["energy_method"], row["idle_power_mw"]) == ("nvml_counter", 100_000.0)
    assert (row["throttle_reasons_after"], row["other_processes_after"]) == ("power_cap", 1)
    assert to_frame([row]).height == 1


def test_what_cannot_be_stored_is_made_storable(translate) -> None:
    failure = Failure(
        kind=ErrorKind.CRASHED, message="bad \ud800 byte", remedy="", is_transient=True
    )
    measurement = Measurement(
        task_id="t",
        status=Status.FAILED,
        origin=Origin.MEASURED,
        failure=failure,
        energy=replace(ENERGY, per_inference_mj=math.nan),
    )
    row = translate(measurement=measurement)
    assert (row["energy_mj"], row["error_message"]) == (None, "bad ? byte")
    assert to_frame([json.loads(canonical_json(row))]).height == 1


def test_columns_that_are_made_once_belong_to_each_row_and_follow_the_last_probe() -> None:
    maker = RowMaker(SWEEP, [CELL], {"d": PLACE}, {CELL.export: ARTIFACT})
    first = maker.row(FIRST, MEASUREMENT, "d", FACTS)
    first |= {"model": "changed", "device_model": "changed"}
    first["flags"].append("changed")
    found = []
    for facts in (FACTS, replace(FACTS, device_model="Box 2"), None):
        row = maker.row(FIRST, MEASUREMENT, "d", facts)
        found.append((row["model"], row["device_model"], row["flags"]))
    assert found == [("resnet18", model, ["drift"]) for model in ("Box 1", "Box 2", None)]


def test_what_an_equal_device_took_over_stays_the_cells_and_says_who_measured(
    translate, first
) -> None:
    own = translate()
    heir = DevicePlace(device="other", host="far", host_hash="feedfacecafe", needs_quiet=True)
    row = translate(place=heir, attempt=replace(first, taker="other"))
    for name in ("cell_key", "device", "platform_key"):
        assert row[name] == own[name]
    assert (row["taken_over_by"], row["host"]) == ("other", "feedfacecafe")
    assert row["flags"] == [*own["flags"], "taken_over"]
    assert own["taken_over_by"] is None


def test_a_row_keeps_the_identity_of_a_file_that_is_gone(translate, first) -> None:
    card = ModelCard(name="m", family=Family.HYBRID, source=Source.FILE, entry="/none/m.onnx")
    cell = first.repeat.cell
    export = replace(cell.export, model=ResolvedCard(card=card, sha256="ab"))
    repeat = Repeat(cell=replace(cell, export=export), index=0)
    row = translate(attempt=replace(first, repeat=repeat))
    assert (row["model"], row["card_sha256"], row["latency_p50_ns"]) == ("m", "ab", 25.0)


def test_a_row_states_the_vocabulary_and_the_context_of_its_model(translate, first) -> None:
    shape = LanguageShape(
        layers=2, width=16, heads=4, kv_heads=2, head_size=4, hidden=32, vocabulary=50, context=96
    )
    card = ModelCard(
        name="m", family=Family.LLAMA, source=Source.LANGUAGE, entry="m", language=shape
    )
    cell = first.repeat.cell
    export = replace(cell.export, model=ResolvedCard(card=card, sha256="ab"))
    row = translate(
        attempt=replace(first, repeat=Repeat(cell=replace(cell, export=export), index=0))
    )
    assert (row["vocabulary"], row["model_context_tokens"]) == (50, 96)
    assert translate()["model_context_tokens"] is None


def test_one_sample_has_no_standard_deviation() -> None:
    assert summarise([5])["latency_std_ns"] is None
    assert summarise([5])["latency_p99_ns"] == 5.0
    assert set(summarise([]).values()) == {None}
    assert summarise([]).keys() == summarise([5]).keys()


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_percentiles_are_numpys(samples) -> None:
    summary = summarise(samples)
    expected = np.percentile(samples, (50, 90, 95, 99))
    names = ("latency_p50_ns", "latency_p90_ns", "latency_p95_ns", "latency_p99_ns")
    assert np.allclose([summary[name] for name in names], expected, rtol=1e-12, atol=0)


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=50))
def test_summaries_agree_with_pythons_statistics(samples) -> None:
    summary = summarise(samples)
    assert summary["sample_count"] == len(samples)
    assert math.isclose(summary["latency_p50_ns"], statistics.median(samples))
    assert math.isclose(summary["latency_mean_ns"], statistics.fmean(samples))
    assert math.isclose(summary["latency_std_ns"], statistics.stdev(samples), rel_tol=1e-6)
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    for name, cut in (("latency_p90_ns", 89), ("latency_p95_ns", 94), ("latency_p99_ns", 98)):
        assert math.isclose(summary[name], cuts[cut], rel_tol=1e-9)
