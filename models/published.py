"""A folder as Hugging Face stores a model: its files, their hashes and weights; read offline.

`architectures` reads its `config.json`.
"""

import errno
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import BadFileError, reworded
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.visible_text import shortened
from fleetrank.models.architectures import CONFIG, Architecture, architecture_of
from fleetrank.models.cards.language import MEMORY, LanguageShape
from fleetrank.models.errors import ExportError
from fleetrank.models.safetensors_file import FLOATS, StoredTensor, load_tensor, read_tensors

if TYPE_CHECKING:
    import torch

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MEMORY_FILE = f"{MEMORY}.safetensors"
"""What a network that reads segments has beside a published model, under our own names."""
_MOST_NAMED = 5
_Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One parameter and where it is stored.

    Attributes:
        own: name of the parameter.
        name: theirs, without the prefix.
        part: of a fused layer; `None` if it is stored alone.
        shape: of the parameter.
        is_transposed: the stored matrix is inputs x outputs.
    """

    own: str
    name: str
    part: int | None
    shape: _Sizes
    is_transposed: bool

    @property
    def stored_shape(self) -> _Sizes:
        """The sizes that the file must have."""
        n_parts = 1 if self.part is None else 3
        outputs, *inputs = self.shape
        if self.is_transposed:
            return (*inputs, n_parts * outputs)
        return (n_parts * outputs, *inputs)


def checkpoint_sha256(path: Path) -> str:
    """Identity of a state dict, or of the files of a folder that `load_folder` may read.

    Raises:
        OSError: one of the files cannot be read, or a folder has no `config.json`.
    """
    if not path.is_dir():
        return file_sha256(path)
    if not (path / CONFIG).is_file():
        raise FileNotFoundError(errno.ENOENT, f"the folder has no {CONFIG}", str(path))
    files = sorted(file for file in path.iterdir() if _is_read(file.name))
    parts = [(file.name, file_sha256(file)) for file in files]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _is_read(name: str) -> bool:
    return name in {CONFIG, INDEX} or name.endswith(".safetensors")


def load_folder(network: "torch.nn.Module", shape: LanguageShape, folder: Path) -> None:
    """Gives a built decoder or encoder the weights of a folder, converted to its number type.

    The weights of a memory for segments are in `memory.safetensors` beside them.

    Raises:
        ExportError: a file is missing or damaged, `config.json` disagrees with the card, or names
            or shapes of weights are others; the message lists them.
    """
    import torch

    with reworded(ExportError, BadFileError):
        architecture = architecture_of(folder, shape)
        stored = _stored(folder, architecture)
        parameters = dict(network.named_parameters())
        _load_memory(folder, [name for name in parameters if _is_memory(name)], parameters)
        published = {own: value for own, value in parameters.items() if not _is_memory(own)}
        wanted = [_wanted(own, value, architecture) for own, value in published.items()]
        _check_names(folder, wanted, stored, architecture)
        _check_shapes(folder, wanted, stored)
        with torch.no_grad():
            for one in wanted:
                values = load_tensor(stored[one.name])
                parameters[one.own].copy_(_own_form(values, one, shape, architecture))


def _is_memory(own: str) -> bool:
    return own.startswith(f"{MEMORY}.")


def _load_memory(
    folder: Path, names: Iterable[str], parameters: "Mapping[str, torch.Tensor]"
) -> None:
    """Raises `ExportError` if the file lacks one of the names, or has it in another shape."""
    import torch

    path = folder / MEMORY_FILE
    stored = read_tensors(path) if path.is_file() else {}
    for name in names:
        found, shape = stored.get(name), tuple(parameters[name].shape)
        if found is None or found.shape != shape or found.dtype not in FLOATS:
            raise ExportError(
                f"{path} does not give {name} as floats of {list(shape)}, and the model has no "
                "trained memory without it",
                f"save all weights whose names begin with {MEMORY}. in this file, use seeded "
                "weights, or turn the memory off with n0",
            )
        with torch.no_grad():
            parameters[name].copy_(load_tensor(found))


def _stored(folder: Path, architecture: Architecture) -> dict[str, StoredTensor]:
    """The tensors of all files, by their names without the prefix."""
    index = folder / INDEX
    if index.is_file():
        tensors = _sharded(index)
    elif (folder / WHOLE).is_file():
        tensors = list(read_tensors(folder / WHOLE).values())
    else:
        names = sorted(path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt"})
        others = f"; {', '.join(names[:_MOST_NAMED])} may hold code and is not read"
        raise ExportError(
            f"{folder} has no {WHOLE} and no {INDEX}{others if names else ''}",
            "download the safetensors files of the model",
        )
    found: dict[str, StoredTensor] = {}
    for tensor in tensors:
        name = architecture.plain(tensor.name)
        if name in found:
            raise BadFileError(
                f"{folder} holds {shortened(name)} twice", "remove one of the two names"
            )
        found[name] = tensor
    return found


def _sharded(index: Path) -> list[StoredTensor]:
    """The tensors that an index names; each must be in the file that it names."""
    places = read_json_object(index).get("weight_map")
    if not isinstance(places, Mapping) or not all(isinstance(f, str) for f in places.values()):
        raise BadFileError(f"{index} has no valid 'weight_map'", "download it again")
    files = sorted(set(places.values()))
    is_name = {name: Path(name).name == name and len(name.encode()) < 256 for name in files}
    if outside := [name for name in files if not is_name[name] or not _is_read(name)]:
        raise BadFileError(
            f"{index} names {shortened(outside[0])}, which is not a safetensors file beside it",
            "download it again",
        )
    if absent := [name for name in files if not (index.parent / name).is_file()]:
        raise BadFileError(
            f"{index.parent} lacks {_listed(absent)} of {len(files):,} files",
            "download the missing files",
        )
    by_file = {name: read_tensors(index.parent / name) for name in files}
    if lost := [name for name, file in places.items() if name not in by_file[file]]:
        raise BadFileError(
            f"{index} names tensors that their files lack: {_listed(lost)}",
            "download the files again",
        )
    return [by_file[file][name] for name, file in places.items()]


def _wanted(own: str, parameter: "torch.Tensor", architecture: Architecture) -> _Wanted:
    is_block_matrix = own.startswith("blocks.") and parameter.ndim == 2
    return _Wanted(
        own=own,
        name=architecture.name_of(own),
        part=architecture.part_of(own),
        shape=tuple(parameter.shape),
        is_transposed=architecture.is_transposed and is_block_matrix,
    )


def _check_names(
    folder: Path, wanted: Iterable[_Wanted], stored: Iterable[str], architecture: Architecture
) -> None:
    needed = dict.fromkeys(one.name for one in wanted)
    have = set(stored)
    missing = [name for name in needed if name not in have]
    spare = sorted(n for n in have if n not in needed and not architecture.is_skipped(n))
    if missing or spare:
        lists = [("missing", missing), ("unexpected", spare)]
        said = "; ".join(f"{word}: {_listed(names)}" for word, names in lists if names)
        raise ExportError(
            f"the weights in {folder} are not those of the card: {said}",
            "use the checkpoint of this model, or download it again",
        )


def _check_shapes(
    folder: Path, wanted: Iterable[_Wanted], stored: Mapping[str, StoredTensor]
) -> None:
    bad = [
        f"{one.name} is {list(stored[one.name].shape)} of {stored[one.name].dtype}, "
        f"not {list(one.stored_shape)} of floats"
        for one in wanted
        if stored[one.name].shape != one.stored_shape or stored[one.name].dtype not in FLOATS
    ]
    if bad:
        raise ExportError(
            f"weights in {folder} have other shapes: {_listed(bad)}",
            "use the checkpoint of this model",
        )


def _own_form(
    values: "torch.Tensor", one: _Wanted, shape: LanguageShape, architecture: Architecture
) -> "torch.Tensor":
    """Outputs x inputs, of one layer alone."""
    if one.is_transposed:
        values = values.T
    if one.part is None:
        return values
    if architecture.is_by_head:
        by_head = values.unflatten(0, (shape.heads, 3, shape.head_size))
        return by_head[:, one.part].flatten(0, 1)
    return values.chunk(3)[one.part]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(shortened(name) for name in names[:_MOST_NAMED]) + more
