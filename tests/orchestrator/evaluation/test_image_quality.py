"""Accuracy on images: a small network that the test trains, in three runtimes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from stored_evaluations import evaluated
from torch import nn

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def digits(folder: Path) -> Path:
    """Images of digits that training has not seen, and a network trained here."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images[:, None] / 16).float()
    labels = torch.from_numpy(data.target)
    is_seen = torch.arange(len(labels)) % 3 > 0
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(40):
        loss = nn.functional.cross_entropy(network(images[is_seen]), labels[is_seen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.save(network.state_dict(), folder / "digits.pt")
    (folder / "digits_network.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Conv2d(1, 8, 3, "
        "padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))\n"
    )
    (folder / "cards" / "digits.toml").write_text(
        'name = "digits"\nfamily = "standard_cnn"\nentry = "digits_network:make"\n'
        'source = "entry_point"\naccuracy_top1 = 98.9\naccuracy_source = "a table"\n'
        '[[inputs]]\nname = "image"\nshape = ["batch", 1, 8, 8]\ndtype = "float32"\n'
    )
    for number in torch.nonzero(~is_seen)[:, 0].tolist():
        place = folder / "digits" / str(data.target[number])
        place.mkdir(parents=True, exist_ok=True)
        levels = np.round(data.images[number] * 255 / 16).astype(np.uint8)
        Image.fromarray(levels).save(place / f"{number:04d}.png")
    with torch.inference_mode():
        right = network(images[~is_seen]).argmax(1) == labels[~is_seen]
    (folder / "right.txt").write_text(str(100 * float(right.float().mean())))
    return folder / "digits"


def _images(folder: Path, digits: Path, *words: str) -> dict[str, dict[str, object]]:
    return evaluated(
        folder, "images", "--model", "digits", "--data", str(digits), "--trust", "--crop", "1",
        "--checkpoint", str(folder / "digits.pt"), "--mean", "0", "--std", "1", *words,
    )  # fmt: skip


def test_three_runtimes_have_the_accuracy_of_the_trained_network(
    folder: Path, digits: Path
) -> None:
    wanted = float((folder / "right.txt").read_text())
    assert wanted > 90
    for runtime in ("torch", "onnx", "tflite"):
        found = _images(folder, digits, "--runtime", runtime)
        top1, top5 = found["images top1"], found["images top5"]
        assert top1["quality"] == pytest.approx(wanted, abs=1e-4)
        assert top5["quality"] >= top1["quality"]
        assert (top1["n_items"], top1["published"]) == (599, 98.9)
        differs = abs(wanted - 98.9) > 0.5
        assert top1["flags"] == (["accuracy_differs"] if differs else [])
        assert top1["quality_low"] < wanted < top1["quality_high"]
    near = _images(folder, digits, "--runtime", "onnx", "--published", str(wanted), "--limit", "7")
    assert near["images top1"]["flags"][0] == "limited"
