"""Planning, keys and rows read no model file: its identity is read once, before them."""

from pathlib import Path

from fleetrank.foundation.vocabulary import Family
from fleetrank.models.cards.card import ModelCard, Source
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.identity import Attempt, DevicePlace, Repeat
from fleetrank.orchestrator.plan.estimate import exporting_s, measuring_s
from fleetrank.orchestrator.plan.plan import make_plan
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec


def test_a_plan_its_estimate_and_its_rows_need_no_file(tmp_path: Path, translate) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(b"x")
    mine = ModelCard(name="mine", family=Family.HYBRID, source=Source.FILE, entry=str(path))
    spec = SweepSpec.model_validate({"name": "s", "models": "mine", "runtimes": "onnx"})
    model = resolve(mine)
    path.unlink()
    box = DeviceFile(name="box", kind="cpu")
    plan = make_plan(spec, [model], {"box": box, "local-cpu": box})
    measuring_s(plan, {}, {"box": DevicePlace(device="box", host="h", needs_quiet=True)})
    exporting_s([cell.export for cell in plan.cells], 2)
    row = translate(attempt=Attempt(repeat=Repeat(cell=plan.cells[0], index=0), number=0))
    assert row["card_sha256"] == model.sha256
