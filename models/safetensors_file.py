"""The tensors of safetensors files, which may be damaged or hostile; nothing is executed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetrank.foundation.errors import BadFileError, failing_as
from fleetrank.foundation.small_file import open_regular

if TYPE_CHECKING:
    import torch

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of weights, as the library names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name; their values are not read.

    Raises:
        BadFileError: the file cannot be read, is cut off, or its header is not valid.
    """
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.offset_keys()}
        return {
            name: StoredTensor(
                path=path, name=name, dtype=part.get_dtype(), shape=tuple(part.get_shape())
            )
            for name, part in parts.items()
        }


def load_tensor(stored: StoredTensor) -> "torch.Tensor":
    """The values of a tensor.

    Raises:
        BadFileError: the file has changed, or cannot be read.
    """
    with _opened(stored.path) as file:
        values: torch.Tensor = file.get_tensor(stored.name)
    return values


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    message = f"{path} is not a valid safetensors file"
    invalid = failing_as(BadFileError, message, "download or save it again", SafetensorError)
    unread = failing_as(BadFileError, f"{path} cannot be read", "check the path", OSError)
    # The library would wait for the other end of a pipe.
    with invalid, unread, open_regular(path), safe_open(path, framework="pt") as file:
        yield file
