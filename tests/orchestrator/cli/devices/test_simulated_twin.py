"""`devices add NAME --kind simulated --like DEVICE`."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from fleet_rows import NETS, PLACES, write_results
from wording import has

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.simulated import capacity_of, latency_ns, read_options
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.cli.main import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_results(tmp_path / "results", places=PLACES[:4], n_samples=3)
    for name in ("devices", "cards", "sweeps"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.yaml").touch()
    return tmp_path


def _add(root: Path, *words: str) -> int:
    return run(["devices", "add", "twin", *words, "--workspace", str(root)])


def test_a_twin_is_as_fast_as_the_rows_of_its_device(root, capsys) -> None:
    assert _add(root, "--kind", "simulated", "--like", "pixel-7") == 0
    said = capsys.readouterr().err
    assert has(said, "26 cells", "pixel-7", "GFLOP/s", "median", "largest")
    options = yaml.safe_load((root / "devices" / "twin.yaml").read_text())["options"]
    assert (options["tier"], options["device_model"]) == ("edge", "twin of pixel-7")
    assert options["noise"] > 0
    capacity = capacity_of(read_options(options))
    files = list((root / "results" / "measurements").rglob("*.parquet"))
    rows = pl.read_parquet(files).filter(pl.col("device") == "pixel-7")
    errors = []
    for (model, runtime), cell in rows.group_by("model", "runtime"):
        net = next(net for net in NETS if net.name == model)
        execution = Execution(runtime=Runtime(runtime), backend="cpu")
        macs = int(net.mflops * 1e6 / 2)
        found = latency_ns(capacity, macs, int(net.parameters), execution)
        errors.append(abs(found / cell["latency_p50_ns"].median() - 1))
    # The message states the error of what was written.
    assert f"median {100 * np.median(errors):.0f} %, largest {100 * max(errors):.0f} %" in said
    assert np.median(errors) < 0.2


def test_an_option_of_the_command_stands_before_the_fit(root) -> None:
    words = ("--kind", "simulated", "--like", "Google Pixel 7", "--option", "noise=0")
    assert _add(root, *words) == 0
    assert yaml.safe_load((root / "devices" / "twin.yaml").read_text())["options"]["noise"] == 0


def test_what_cannot_be_imitated_is_refused_with_the_reason(root, capsys) -> None:
    assert _add(root, "--kind", "simulated", "--like", "pixel-8") == 4
    assert has(capsys.readouterr().err, "pixel-8", "0 measured models", "pixel-7")
    assert _add(root, "--kind", "cuda", "--like", "pixel-7") == 2
    assert has(capsys.readouterr().err, "simulated")
    assert not list((root / "devices").iterdir())
