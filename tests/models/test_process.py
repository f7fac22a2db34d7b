"""What an exporting child may do to itself, and what its parent makes of it."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from daily import daily
from waiting import is_soon_gone, wait_until
from wording import has

from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.errors import ExportError
from fleetrank.models.export.process import ExportChild, ExportOrder, peak_memory_estimate_bytes
from fleetrank.models.export.request import export_request

EntryPoint = Callable[..., ExportRequest]
GIB = 1 << 30
CUSTOM_OPERATOR = """
import torch

@torch.library.custom_op("fleetrank_test::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@odd.register_fake
def _(x):
    return torch.empty_like(x)

class Odd(torch.nn.Module):
    def forward(self, x):
        return odd(x)

make = Odd
"""


def export(request: ExportRequest, out_dir: Path, timeout_s: float = 120, **order: object) -> Path:
    """The exported file; the user allows the model's code to run."""
    made = ExportOrder(request=request, out_dir=out_dir, **{"is_trusted": True, **order})
    with ExportChild() as child:
        return child.export(made, timeout_s).path


@pytest.fixture
def refused(tmp_path: Path, entry_point: EntryPoint) -> Callable[..., ExportError]:
    """The error of an export: of the code of an entry point, or of a request."""

    def run(source: str | ExportRequest, format_: Format = Format.PT2, **limits: float):
        request = entry_point(source, format_) if isinstance(source, str) else source
        with pytest.raises(ExportError) as caught:
            export(request, tmp_path, **limits)
        assert caught.value.remedy
        return caught.value

    return run


Refused = Callable[..., ExportError]


def test_request_survives_the_way_to_the_child(entry_point: EntryPoint) -> None:
    request = entry_point("")
    assert from_json(ExportRequest, to_json(request)) == request


def test_every_format_has_a_memory_estimate(entry_point: EntryPoint) -> None:
    for format_ in Format:
        assert peak_memory_estimate_bytes(entry_point("", format_)) > GIB // 2


@pytest.mark.parametrize(
    ("format_", "seen_mib"),
    # Highest resident sizes of the exporting child, for decode@128.
    [(Format.ONNX, 2518), (Format.PT2, 1110), (Format.TFLITE, 3013), (Format.PTE, 2269)],
)
def test_a_decoder_of_135_million_parameters_stays_below_6_gb(
    format_: Format, seen_mib: int
) -> None:
    card = load_language_zoo()["smollm-135m"]
    request = ExportRequest(
        model=resolve(card),
        weights=Weights(),
        format=format_,
        workload=Workload.parse("decode@128"),
    )
    estimate = peak_memory_estimate_bytes(request)
    assert seen_mib << 20 < estimate < 6e9
    longer = replace(request, workload=Workload.parse("decode@2048"), batch=8)
    assert peak_memory_estimate_bytes(longer) > 2 * estimate
    off, memory = (
        peak_memory_estimate_bytes(replace(request, workload=Workload.parse(f"segment@64+n{n}")))
        for n in (0, 1)
    )
    assert memory - off > 2 * 4 * (2 * 576 * 4096)  # two copies at least of two matrices


@pytest.mark.thorough
def test_child_sees_no_gpu_and_no_package_of_the_workspace(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child takes seconds of a GPU, or the code of a workspace, only if it can see them."""
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    source = "import os\n\ndef make():\n    exit('sees ' + os.environ['CUDA_VISIBLE_DEVICES'])\n"
    assert refused(source).message.endswith("sees")


KILLED = "import os; os.kill(os.getpid(), 9)"
ENDED = "import os; print('last words', flush=True); os._exit(3)"


@pytest.mark.parametrize(
    ("body", "words"),
    daily(
        [
            (KILLED, ("pt2", "ended", "SIGKILL", "memory")),
            (ENDED, ("exit code 3", "last words")),
        ],
        KILLED,
    ),
)
def test_a_child_that_ends_is_an_error_with_its_reason(
    refused: Refused, body: str, words: tuple[str, ...]
) -> None:
    """A child per case: each case ends it."""
    assert has(str(refused(f"def make():\n    {body}\n")), *words)


def test_what_goes_wrong_in_code_of_the_user_is_an_error_with_its_reason(
    tmp_path: Path, entry_point: EntryPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for body, *words in (
        ("raise KeyError('width')", "networks:make", "KeyError", "width"),
        ("return 3", "returned int"),
    ):
        request = entry_point(f"def make():\n    {body}\n")
        sys.modules.pop("networks", None)
        with pytest.raises(ExportError) as caught:
            export_request(request, tmp_path, is_trusted=True)
        assert has(str(caught.value), *words), body
        assert caught.value.remedy
    sys.modules.pop("networks")


@pytest.mark.thorough
def test_child_that_exhausts_its_memory_says_so(refused: Refused) -> None:
    source = "import torch\n\ndef make():\n    return torch.ones(8 << 30)\n"
    error = refused(source, memory_limit_bytes=2 * GIB)
    assert "ran out of memory" in error.message
    assert "memory limit" in error.remedy


@pytest.mark.thorough
def test_child_that_never_returns_is_killed_with_all_it_started(
    tmp_path: Path, refused: Refused
) -> None:
    pid_path = tmp_path / "pid"
    source = (
        "import pathlib, subprocess, time\n\ndef make():\n"
        "    sleeper = subprocess.Popen(['sleep', '600'])\n"
        f"    pathlib.Path({str(pid_path)!r}).write_text(str(sleeper.pid))\n"
        "    time.sleep(600)\n"
    )
    error = refused(source, timeout_s=15)
    assert "took longer than 15 s" in error.message
    assert is_soon_gone(int(pid_path.read_text()))


def test_child_dies_with_its_parent(tmp_path: Path, entry_point: EntryPoint) -> None:
    pid_path = tmp_path / "pid"
    request = entry_point(
        "import os, pathlib, time\n\ndef make():\n"
        f"    pathlib.Path({str(pid_path)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    script = (
        "import sys, pathlib\n"
        "from fleetrank.foundation.codec import from_json\n"
        "from fleetrank.models.cards.card import ExportRequest\n"
        "from fleetrank.models.export.process import ExportChild, ExportOrder\n"
        "request = from_json(ExportRequest, sys.argv[1])\n"
        "order = ExportOrder(request=request, out_dir=pathlib.Path(sys.argv[2]), is_trusted=True)\n"
        "ExportChild().export(order, 600)\n"
    )
    command = [sys.executable, "-c", script, to_json(request), str(tmp_path)]
    parent = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    wait_until(lambda: pid_path.exists() and pid_path.read_text() != "", "the child", 60.0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert is_soon_gone(int(pid_path.read_text()))


@pytest.mark.export
@pytest.mark.thorough
@pytest.mark.parametrize("format_", [Format.ONNX, Format.TFLITE])
def test_unsupported_operator_is_a_reason_and_no_crash(refused: Refused, format_: Format) -> None:
    error = refused(CUSTOM_OPERATOR, format_)
    assert f"mine cannot be exported to {format_}" in error.message
    assert "fleetrank_test" in error.message


def test_precision_that_no_exporter_makes_is_refused(
    tmp_path: Path, entry_point: EntryPoint
) -> None:
    with pytest.raises(ExportError, match="'int3'") as caught:
        export_request(replace(entry_point(""), precision="int3"), tmp_path, is_trusted=True)
    assert caught.value.remedy
