"""What a sweep prints at its end: a few lines that a newcomer can read."""

from pathlib import Path

import pytest
from fleet_rows import NETS, SWEEP, Place, write_results
from wording import has

from fleetrank.orchestrator.cli.sweep_display import found_lines

SIX = [one for one in NETS if one.name in {
    "resnet18", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "levit_128s", "deit_tiny"
}]  # fmt: skip
MINE, OTHERS = "quick-20260102T030405-0a1b", "import-demo-20260101T030405-0a1b"
HERE = [Place(device="cpu-1", tier="cpu", runtime=one, gflops=60.0) for one in ("onnx", "torch")]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results", nets=SIX, places=HERE, sweep=MINE)


def test_models_are_the_columns_where_their_names_fit_a_line(results: Path) -> None:
    names, *rows, steady = found_lines(results, MINE)
    assert names.split() == ["ms", *(one.name for one in sorted(SIX, key=lambda one: one.name))]
    assert [row.split()[0] for row in rows] == ["onnx", "torch"]
    assert all(float(ms) > 0 for row in rows for ms in row.split()[1:])
    assert has(steady, "12", "12 figures", "12 with a 95 % interval"), steady


def test_thirteen_models_are_the_rows(tmp_path: Path) -> None:
    names, *rows, _steady = found_lines(write_results(tmp_path / "all", places=HERE), SWEEP)
    assert names.split() == ["ms", "onnx", "torch"]
    assert len(rows) == 13


def test_the_pair_that_other_devices_reverse_is_named(results: Path) -> None:
    places = [
        Place(device=f"phone-{n}", tier="edge", runtime="tflite", gflops=9.0, origin="imported")
        for n in (1, 2)
    ]
    write_results(results, nets=SIX, places=places, repeats=1, sweep=OTHERS, seed=5)
    *lines, surprise = found_lines(results, MINE)
    assert len(lines) == 4
    assert has(surprise, "No:", "times as fast as", "here", "slower", "2 of 2 other devices")
