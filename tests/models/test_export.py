"""Real exports; what runs the files is tested where they are run."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from daily import daily

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.runner import create_runner, default_backend
from fleetrank.foundation.vocabulary import Family, FlopsMethod, Format, Runtime
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    Cost,
    ExportRequest,
    ModelCard,
    Source,
    StagedExport,
    Weights,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.export.process import ExportChild, ExportOrder
from fleetrank.models.networks.primer import PRIMER, primer_request

ROOT = Path(__file__).parents[2]


Stage = Callable[[Format], tuple[ExportRequest, StagedExport]]
COPIED = (Format.ONNX, Format.TFLITE)
"""The formats in which the primer of the product is a file."""


def export(request: ExportRequest, out_dir: Path, *, is_trusted: bool = False) -> StagedExport:
    with ExportChild() as child:
        return child.export(
            ExportOrder(request=request, out_dir=out_dir, is_trusted=is_trusted), 300
        )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ArtifactCache:
    return ArtifactCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def staged(cache: ArtifactCache) -> Iterator[Stage]:
    """Makes the primer in a format, in one child; a real export is never made twice."""
    with ExportChild() as child:

        @functools.cache
        def stage(format_: Format) -> tuple[ExportRequest, StagedExport]:
            request = ExportRequest(model=resolve(PRIMER), weights=Weights(), format=format_)
            order = ExportOrder(
                request=request, out_dir=cache.staging_dir(request), is_trusted=False
            )
            return request, child.export(order, 300)

        yield stage


@pytest.mark.export
@pytest.mark.parametrize(
    "formats",
    [
        pytest.param(COPIED, id="copied"),
        pytest.param(tuple(Format), id="every", marks=pytest.mark.thorough),
    ],
)
def test_a_network_of_ours_exports_to_every_format(
    staged: Stage, cache: ArtifactCache, formats: tuple[Format, ...]
) -> None:
    """In child processes, as users export: the four libraries must not disturb each other."""
    for format_ in formats:
        request, made = staged(format_)
        assert made.cost == Cost(
            macs=42_416,
            parameters=314,
            method=FlopsMethod.COUNTED,
            by_module=(("0", "conv2d", 42_336), ("4", "linear", 80)),
        ), format_
        assert "torch" in dict(made.versions)
        assert made.inputs_path is not None
        assert made.reference_path is not None
        with np.load(made.inputs_path, allow_pickle=False) as arrays:
            assert arrays["input_0"].shape == (16, 3, 16, 16)
        with np.load(made.reference_path, allow_pickle=False) as arrays:
            assert arrays["output_0"].shape == (16, 10)
        if format_ not in COPIED:  # what is committed is moved, and another test reads those
            committed = cache.commit(request, made, None)
            assert cache.find(request) == committed


@pytest.mark.slow
@pytest.mark.parametrize("format_", daily(COPIED, Format.ONNX))
def test_the_primer_s_file_needs_no_torch(tmp_path: Path, format_: Format) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from fleetrank.foundation.vocabulary import Format\n"
        "from fleetrank.models.export.request import export_request\n"
        "from fleetrank.models.networks.primer import primer_request\n"
        f"request = primer_request(Format({format_.value!r}))\n"
        f"export_request(request, Path({str(tmp_path)!r}), is_trusted=False)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
    assert (tmp_path / f"model.{format_}").stat().st_size < 4000


@pytest.mark.export
def test_the_primer_s_files_compute_what_the_network_does(staged: Stage) -> None:
    made = staged(Format.ONNX)[1]
    assert made.inputs_path is not None
    assert made.reference_path is not None
    for format_, runtime in ((Format.ONNX, Runtime.ONNX), (Format.TFLITE, Runtime.TFLITE)):
        file = primer_request(format_).card.entry
        execution = Execution(runtime=runtime, backend=default_backend(runtime))
        model = create_runner(runtime).load(file, execution)
        with np.load(made.inputs_path) as inputs, np.load(made.reference_path) as reference:
            for one, expected in zip(inputs["input_0"], reference["output_0"], strict=True):
                model.set_inputs([one[None]])
                model.run()
                np.testing.assert_allclose(model.outputs()[0][0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.export
def test_keras_model_and_saved_model_become_tflite_when_trusted(tmp_path: Path) -> None:
    make = (
        "import sys, keras\n"
        "net = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)])\n"
        "net.save(sys.argv[1] + '/m.keras')\n"
        "net.export(sys.argv[1] + '/saved', verbose=False)\n"
    )
    subprocess.run([sys.executable, "-c", make, str(tmp_path)], check=True, capture_output=True)
    for name in ("m.keras", "saved"):
        card = ModelCard(
            name="mine", family=Family.HYBRID, source=Source.FILE, entry=str(tmp_path / name)
        )
        request = ExportRequest(model=resolve(card), weights=Weights(), format=Format.TFLITE)
        staged = export(request, tmp_path, is_trusted=True)
        assert staged.path.read_bytes()[4:8] == b"TFL3"
        assert "tensorflow-cpu" in dict(staged.versions)


@pytest.mark.thorough
@pytest.mark.export
def test_person_exports_without_the_libraries_of_results_and_hosts(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("polars", "ray", "pyarrow", "duckdb", "typer", "rich", "orjson",
                 "psutil", "onnxruntime", "onnx", "tensorflow"):  # fmt: skip
        (blocked / f"{name}.py").write_text("raise ImportError('not on this machine')")
    command = [
        sys.executable,
        "-m",
        "fleetrank.models.export",
        "squeezenet1_1",
        "pt2",
        "--out",
        "out",
    ]
    command += ["--precision", "fp16"]
    paths = filter(None, (str(blocked), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["path"] == str(tmp_path / "out" / "model.pt2")
    assert answer["cost"]["parameters"] == 1_235_496
    # Two bytes a parameter, and a little for the graph.
    assert 2 * 1_235_496 < (tmp_path / "out" / "model.pt2").stat().st_size < 3 * 1_235_496


def test_person_who_misspells_a_model_gets_the_nearest(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fleetrank.models.export",
        "resnet81",
        "pt2",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["unknown model 'resnet81'", "did you mean 'resnet18'?"]
