"""What a user's bad file does to a sweep: one failed row with a remedy, and the rest goes on."""

import subprocess
from pathlib import Path

import pytest
from hostile_pt2 import hostile_weights
from tiny_onnx import save_external

TFLITE = Path(__file__).parents[2] / "device_agents" / "data" / "tiny.tflite"

pytestmark = pytest.mark.export


@pytest.fixture(scope="module")
def pt2_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    path = tmp_path_factory.mktemp("pt2") / "tiny.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 16, 16),)), path)
    return path


def changed_byte(source: Path, target: Path) -> Path:
    """Flips a bit in the middle of the weights, where no header would notice."""
    data = bytearray(source.read_bytes())
    place = data.index(b"weight_0") + 200
    data[place] ^= 1
    target.write_bytes(data)
    return target


def run(folder, models: dict[str, Path], runtimes: str) -> subprocess.CompletedProcess[str]:
    for name, file in models.items():
        folder.add_model(name, file)
    path = folder.write_spec(["m0", *models], ["local-cpu"], repeats=1)
    path.write_text(path.read_text().replace("runtimes: [onnx]", f"runtimes: [{runtimes}]"))
    return folder.run("sweep", "run", "t", "--inline")


@pytest.mark.thorough
def test_every_bad_file_is_a_failed_row_and_the_good_model_is_measured(
    folder, tmp_path: Path, pt2_file: Path
) -> None:
    marker, bad = tmp_path / "marker", tmp_path / "bad"
    bad.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(432))
    (bad / "link.onnx.data").symlink_to(tmp_path / "weights.bin")
    (bad / "text.onnx").write_text("this is no network")
    (bad / "half.tflite").write_bytes(TFLITE.read_bytes()[: TFLITE.stat().st_size // 2])
    models = {
        "text": bad / "text.onnx",
        "above": save_external(bad / "above.onnx", "../weights.bin"),
        "absolute": save_external(bad / "absolute.onnx", str(tmp_path / "weights.bin")),
        "link": save_external(bad / "link.onnx", "link.onnx.data"),
        "half": bad / "half.tflite",
        "hostile": hostile_weights(marker, pt2_file, bad / "hostile.pt2"),
        "byte": changed_byte(pt2_file, bad / "byte.pt2"),
    }
    done = run(folder, models, "onnx, torch, tflite")
    assert done.returncode == 3, done.stdout + done.stderr
    rows = {str(row["model"]): row for row in folder.rows()}
    assert rows.keys() == {"m0", *models}
    assert rows.pop("m0")["status"] == "ok"
    for name, row in rows.items():
        assert row["status"] == "failed", name
        assert row["error_kind"] in {"bad_artifact", "export_failed"}, (name, row["error_kind"])
        assert row["error_message"], name
        assert row["error_remedy"], name
        assert row["samples_ns"] is None, name
    assert not marker.exists(), "the hostile file ran its code"


@pytest.mark.thorough
def test_an_exported_file_that_changed_in_the_cache_is_exported_again(folder) -> None:
    source = "import torch\n\n\ndef make():\n    return torch.nn.Conv2d(3, 4, 3)\n"
    (folder.root / "my_nets.py").write_text(source)
    card = 'family = "mobile_cnn"\nsource = "entry_point"\nentry = "my_nets:make"\n'
    (folder.root / "cards/mine.toml").write_text(card + "input_size = 16\n")
    path = folder.write_spec(["mine"], ["local-cpu"], repeats=1)
    path.write_text(path.read_text().replace("[onnx]", "[torch]"))
    first = folder.run("sweep", "run", "t", "--inline", "--trust")
    assert first.returncode == 0, first.stdout + first.stderr
    sha256 = folder.rows()[0]["artifact_sha256"]
    file = folder.root / "artifacts" / "files" / f"{sha256}.pt2"
    changed_byte(file, file)
    again = folder.run("sweep", "run", "t", "--inline", "--trust")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["status"] for row in folder.rows()] == ["ok"]
    assert "damaged" in again.stdout + again.stderr
