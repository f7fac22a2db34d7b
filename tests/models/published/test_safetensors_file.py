"""The reader of safetensors against the library that defines them, on good and bad files."""

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wording import has

from fleetrank.foundation.errors import BadFileError
from fleetrank.models.published import FLOATS, load_tensor, read_tensors

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor(7.5, dtype=torch.bfloat16),
    "nothing": torch.zeros(0, 4),
    "c": torch.ones(5, dtype=torch.float16),
    "whole": torch.ones(3, dtype=torch.int64),
}


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from safetensors.torch import save_file

    path = tmp_path_factory.mktemp("file") / "x.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt"})
    return path.read_bytes()


def written(path: Path, header: object, n_bytes: int = 0) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(n_bytes))
    return path


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4)) -> object:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_values_are_those_of_the_library(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    found = read_tensors(path)
    assert found.keys() == TENSORS.keys()
    for name, wanted in TENSORS.items():
        assert found[name].shape == tuple(wanted.shape)
        if wanted.is_floating_point():
            assert torch.equal(load_tensor(found[name]), wanted)
    with pytest.raises(BadFileError, match="whole"):
        load_tensor(found["whole"])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_as_the_library_reads_it(
    content: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    if data.draw(st.booleans()):
        damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, min(len(damaged) - 1, 400)))] = data.draw(
            st.integers(0, 255)
        )
    path = tmp_path / "x.safetensors"
    path.write_bytes(damaged)
    try:
        found = read_tensors(path)
    except BadFileError:
        return
    try:
        wanted = load(bytes(damaged))
    except (SafetensorError, KeyError):
        # The library refuses more: types that it does not know, metadata that is no text.
        return
    assert found.keys() == wanted.keys()
    for name, one in found.items():
        if one.dtype in FLOATS:
            assert load_tensor(one).flatten().tolist() == pytest.approx(
                wanted[name].flatten().tolist(), nan_ok=True
            )


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry("F31")},
        {"a": entry(shape=[2])},
        {"a": entry(shape=[-1])},
        {"a": entry(shape=[True])},
        {"a": entry(shape=["1"])},
        {"a": entry(shape=[1] * 9)},
        {"a": entry(offsets=[4, 0])},
        {"a": entry(offsets=[-4, 0])},
        {"a": entry(offsets=[0])},
        {"a": entry(shape=[2**40, 2**40], offsets=[0, 2**47])},
        {"a": {"dtype": "F32"}},
        {"a": 3},
        {"a": entry(), "b": entry()},
        {"a": entry(), "b": entry(offsets=[2, 6])},
        {"a": entry(offsets=[4, 8])},
        {},
        [],
        b'{"a": 1, "a": 2}',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
    ids=str,
)
def test_a_header_whose_facts_do_not_fit_together_is_refused(
    header: object, tmp_path: Path
) -> None:
    with pytest.raises(BadFileError) as caught:
        read_tensors(written(tmp_path / "x.safetensors", header, 4))
    assert caught.value.remedy


def test_a_header_longer_than_the_file_or_any_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for content in (b"", b"1234567", struct.pack("<Q", 2**63), struct.pack("<Q", 9) + b"{}"):
        path.write_bytes(content)
        with pytest.raises(BadFileError):
            read_tensors(path)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**30))
        file.truncate(2**31)
    with pytest.raises(BadFileError, match="header"):
        read_tensors(path)


def test_a_short_file_is_cut_off_and_a_long_one_has_bytes_of_no_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(BadFileError) as caught:
        read_tensors(written(path, {"a": entry()}, 3))
    assert has(caught.value.message, "cut off")
    with pytest.raises(BadFileError) as caught:
        read_tensors(written(path, {"a": entry()}, 5))
    assert has(caught.value.message, "1 bytes")


def test_a_file_that_changes_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.safetensors", {"a": entry()}, 4)
    found = read_tensors(path)["a"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFileError, match="shorter"):
        load_tensor(found)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadFileError):
        load_tensor(found)
    with pytest.raises(BadFileError):
        read_tensors(path)
