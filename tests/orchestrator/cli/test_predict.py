"""`predict` as it is typed."""

from pathlib import Path

import polars as pl
import pytest
from fleet_rows import write_results
from stored_part import write_part

import fleetrank

KEY = "pixel-7/onnx/cpu/eager/fp32/b1/t1/afree/{}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    write_results(root / "results", n_samples=5)
    part = next((root / "results" / "measurements").rglob("*.parquet"))
    is_hidden = (pl.col("device") == "pixel-7") & (pl.col("model") == "resnet50")
    pl.read_parquet(part).filter(~is_hidden).pipe(write_part, part)
    return root


def test_more_coverage_and_fewer_models_are_options(asked) -> None:
    chosen = "predict --device pixel-7 --runtime onnx --models resnet* --models d*"
    rows = asked(f"{chosen} --coverage 0.99 --quantity memory --json").rows
    assert {row["model"] for row in rows} == {"resnet18", "resnet50", "densenet121", "deit_tiny"}
    (one,) = (row for row in rows if row["kind"] == "predicted")
    assert one["low_mib"] is None
    assert "more model" in str(one["reason"])


def test_a_device_without_measurements_needs_a_configuration(asked) -> None:
    rows = asked("predict --device new --json --like", KEY).rows
    assert {row["kind"] for row in rows} == {"predicted"}
    unknown = asked("predict --device pixel-8")
    assert (unknown.code, "pixel-7" in unknown.err) == (4, True)


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
def test_every_format_marks_what_is_predicted(asked, form: str) -> None:
    assert "predicted" in asked(f"predict --device pixel-7 --format {form}").out


def test_a_program_gets_the_same_figures(asked, workspace: Path) -> None:
    table = fleetrank.predict(workspace / "results", "pixel-7")
    assert table.frame.to_dicts() == asked("predict --device pixel-7 --json").rows
    narrowed = fleetrank.predict(workspace / "results", "new", like=KEY, coverage=0.5)
    assert set(narrowed.frame["k"]) == {0}
