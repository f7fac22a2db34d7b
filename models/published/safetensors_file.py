"""Reads safetensors files, which may be damaged or hostile; nothing in them is executed.

Source of the format: huggingface/safetensors, README, "Format": 8 bytes of the header's length,
a JSON header, then the values of all tensors without a gap.
"""

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import open_regular
from fleetrank.foundation.visible_text import shortened

if TYPE_CHECKING:
    import torch

_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 16 << 20
"""500 times the header of a decoder with 24 layers."""
_MAX_AXES = 8
_VALUE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
                "U8": 1, "BOOL": 1}  # fmt: skip
FLOATS: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}
"""Types of weights, with their names in PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        start, stop: bytes of the file.
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name; their values are not read.

    Raises:
        BadFileError: the file cannot be read, is cut off, or its header is not valid.
    """
    try:
        with open_regular(path) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            head = file.read(_LENGTH.size)
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else n_bytes
            if length > min(n_bytes - _LENGTH.size, _MAX_HEADER_BYTES):
                raise _bad(path, f"its header would have {length:,} bytes")
            text = file.read(length)
    except OSError as error:
        raise BadFileError(
            f"{path} cannot be read: {error.strerror or error}", "check the path"
        ) from error
    return _checked(path, _header(path, text), _LENGTH.size + length, n_bytes)


def _header(path: Path, text: bytes) -> Mapping[str, object]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _bad(path, "its header is not JSON with each name once") from error
    if not isinstance(header, dict):
        raise _bad(path, "its header is not a JSON object")
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _checked(
    path: Path, header: Mapping[str, object], first: int, n_bytes: int
) -> dict[str, StoredTensor]:
    """Every byte after the header belongs to one tensor."""
    found = [_tensor(path, name, entry, first) for name, entry in header.items()]
    found.sort(key=lambda one: (one.start, one.stop))
    end = first
    for one in found:
        if one.start != end:
            raise _bad(path, f"the values of {shortened(one.name)} overlap others or leave a gap")
        end = one.stop
    if end > n_bytes:
        raise BadFileError(
            f"{path} is cut off: it has {n_bytes:,} of {end:,} bytes", "download it again"
        )
    if end < n_bytes:
        raise _bad(path, f"{n_bytes - end:,} bytes at its end belong to no tensor")
    return {one.name: one for one in found}


def _tensor(path: Path, name: str, entry: object, first: int) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, stop]} if (
            dtype in _VALUE_BYTES
            and len(shape) <= _MAX_AXES
            and all(type(size) is int and 0 <= size < 2**48 for size in (*shape, start, stop))
            and stop - start == math.prod(shape) * _VALUE_BYTES[dtype]
        ):
            return StoredTensor(
                path=path,
                name=name,
                dtype=dtype,
                shape=tuple(shape),
                start=first + start,
                stop=first + stop,
            )
    raise _bad(path, f"type, shape and place of {shortened(name)} do not fit together")


def load_tensor(stored: StoredTensor) -> "torch.Tensor":
    """The values of a tensor of floats.

    Raises:
        BadFileError: the file has changed, or cannot be read; or the values are no floats.
    """
    import torch

    if stored.dtype not in FLOATS:
        raise _bad(stored.path, f"{shortened(stored.name)} holds {stored.dtype}, not floats")
    try:
        with open_regular(stored.path) as file:
            file.seek(stored.start)
            values = bytearray(stored.stop - stored.start)
            n_read = file.readinto(values)
    except OSError as error:
        raise BadFileError(
            f"{stored.path} cannot be read: {error.strerror or error}", "check the path"
        ) from error
    if n_read != len(values):
        raise BadFileError(f"{stored.path} became shorter", "download it again")
    if not values:
        return torch.empty(stored.shape)
    flat = torch.frombuffer(values, dtype=getattr(torch, FLOATS[stored.dtype]))
    return flat.reshape(stored.shape)


def _bad(path: Path, reason: str) -> BadFileError:
    return BadFileError(
        f"{path} is not a valid safetensors file: {reason}", "download or save it again"
    )
