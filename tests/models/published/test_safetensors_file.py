"""Tensors of safetensors files, good and bad."""

import os
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fleetrank.foundation.errors import BadFileError
from fleetrank.models.safetensors_file import load_tensor, read_tensors

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor(7.5, dtype=torch.bfloat16),
    "nothing": torch.zeros(0, 4),
    "c": torch.ones(5, dtype=torch.float16),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"format": "pt"})
    return tmp_path / "x.safetensors"


def test_types_shapes_and_values_are_those_that_were_saved(path: Path) -> None:
    found = read_tensors(path)
    assert found.keys() == TENSORS.keys()
    assert [found[name].dtype for name in ("a", "b", "c")] == ["F32", "BF16", "F16"]
    for name, wanted in TENSORS.items():
        assert found[name].shape == tuple(wanted.shape)
        assert torch.equal(load_tensor(found[name]), wanted)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: struct.pack("<Q", 2**63) + content[8:],
        lambda content: content.replace(b"F32", b"F31"),
        lambda content: content.replace(b"[2,3]", b"[2,4]"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, damage) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadFileError) as caught:
        read_tensors(path)
    assert str(path) in caught.value.message


def test_a_file_that_changes_after_its_header_was_read_is_refused(path: Path) -> None:
    found = read_tensors(path)["a"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFileError):
        load_tensor(found)
    path.unlink()
    with pytest.raises(BadFileError, match="cannot be read"):
        load_tensor(found)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(BadFileError):
        read_tensors(tmp_path / "pipe.safetensors")
