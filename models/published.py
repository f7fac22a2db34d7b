"""A folder as Hugging Face stores a model: `config.json` and `*.safetensors`; read offline."""

import errno
import hashlib
import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import TypeAdapter

from fleetrank.foundation.errors import BadFileError, failing_as, reworded, shortened
from fleetrank.foundation.files import file_sha256, open_regular
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.user_file import Checked, checked
from fleetrank.models.cards.language import MEMORY, Activation, Bias, LanguageShape, valid_shape
from fleetrank.models.errors import ExportError

if TYPE_CHECKING:
    import torch

# What an architecture requires of `config.json`, and what its checkpoints call the layers.

_ACTIVATIONS = {
    Activation.SWIGLU: ("silu", "swish"),
    Activation.GELU: ("gelu",),
    Activation.GELU_TANH: ("gelu_new", "gelu_pytorch_tanh"),
    Activation.RELU: ("relu",),
}
_COMPUTED: Mapping[str, Callable[[LanguageShape], object]] = {
    "activation": lambda shape: _ACTIVATIONS[shape.activation],
    "has_all_biases": lambda shape: shape.bias is Bias.ALL,
}
"""Values of a card that `config.json` states in another form; a tuple: several words mean it."""
_OLD_NAMES = {
    "type": "rope_type",
    "rotary_emb_base": "rope_theta",
    "rotary_pct": "partial_rotary_factor",
}
_NORM_OF_OLD = {"gamma": "weight", "beta": "bias"}
"""Checkpoints converted from TensorFlow call scale and shift of a norm so."""
_QKV = ("queries", "keys", "values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One architecture, as a table of `published_models.toml` states it.

    Attributes:
        always: numbers of a card that every model of the architecture has.
        config: key of `config.json` to what it must be.
        modules: own name of a layer to theirs; `{}` is the number of the block.
        prefix: of their names; some files leave it out.
        fused: the layer of a block that holds queries, keys and values; `None` if each has its own.
        is_by_head: the fused layer has queries, keys and values of the first head, then of the
            second; otherwise all queries first.
        is_transposed: matrices of blocks are stored as inputs x outputs.
        skipped: pattern of names that are not needed: heads of other tasks, pooling, constants.
        has_one_width: the token table has the width of the layers.
    """

    always: Mapping[str, object]
    config: Mapping[str, str | Mapping[str, object]]
    modules: Mapping[str, str]
    prefix: str
    fused: str | None = None
    is_by_head: bool = False
    is_transposed: bool = False
    skipped: str = ""
    has_one_width: bool = False

    def fits(self, shape: LanguageShape) -> bool:
        """Whether a card has the structure that the architecture always has."""
        if self.has_one_width and shape.embedding_width is not None:
            return False
        return all(getattr(shape, name) == value for name, value in self.always.items())

    def stated(
        self, config: Mapping[str, object]
    ) -> Iterator[tuple[str, Mapping[str, object], object]]:
        """Each key with its rule and its value in the file, or else the architecture's default."""
        flat = _flat(config)
        for name, key in self.config.items():
            rule = {"of": key} if isinstance(key, str) else key
            value = flat.get(name)
            yield name, rule, rule.get("default") if value is None else value

    def disagreement(
        self, config: Mapping[str, object], shape: LanguageShape
    ) -> tuple[str, object, object] | None:
        """The first key that disagrees: its name, what the file says, what the card needs.

        `None` if the file agrees. A key that the file leaves out has its architecture's default.
        """
        for name, rule, found in self.stated(config):
            wanted = rule["is"] if "is" in rule else _value_of(shape, str(rule["of"]))
            if found is not None and not _agrees(found, wanted, is_least="is_least" in rule):
                older = (old for old, new in _OLD_NAMES.items() if new == name and old in config)
                return next(older, name), found, wanted
        return None

    def name_of(self, own: str) -> str:
        """Their name of a parameter, without the prefix."""
        module, _, kind = own.rpartition(".")
        found = re.fullmatch(r"blocks\.(\d+)\.(.+)", module)
        if found is None:
            return f"{self.modules[module]}.{kind}"
        number, inside = found.groups()
        if self.part_of(own) is not None:
            return f"{str(self.fused).format(number)}.{kind}"
        return f"{self.modules[inside].format(number)}.{kind}"

    def part_of(self, own: str) -> int | None:
        """0, 1 or 2 for queries, keys and values of a fused layer; `None` otherwise."""
        layer = own.split(".")[-2]
        return _QKV.index(layer) if self.fused is not None and layer in _QKV else None

    def plain(self, name: str) -> str:
        """A stored name without the prefix, and with today's names of norms."""
        module, _, kind = name.removeprefix(self.prefix).rpartition(".")
        return f"{module}.{_NORM_OF_OLD.get(kind, kind)}"

    def is_skipped(self, plain: str) -> bool:
        """Whether a stored value is not needed."""
        return bool(self.skipped) and re.fullmatch(self.skipped, plain) is not None


def _flat(config: Mapping[str, object]) -> dict[str, object]:
    """The keys, with those of the newer tables of rotary positions among them."""
    found = dict(config)
    for table in ("rope_parameters", "rope_scaling"):
        inner = config.get(table)
        if isinstance(inner, Mapping):
            found |= inner
    for old, new in _OLD_NAMES.items():
        found.setdefault(new, found.get(old))
    return found


def _value_of(shape: LanguageShape, name: str) -> object:
    return _COMPUTED[name](shape) if name in _COMPUTED else getattr(shape, name)


def _agrees(found: object, wanted: object, *, is_least: bool) -> bool:
    if isinstance(wanted, tuple):
        return found in wanted
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return (is_least and found >= wanted) or math.isclose(found, wanted, rel_tol=1e-6)
    return found == wanted


with Path(__file__).with_name("published_models.toml").open("rb") as _file:
    _TABLES = tomllib.load(_file)
ARCHITECTURES: Mapping[str, Architecture] = {
    name: Architecture(**{**_TABLES.get(table.pop("like", ""), {}), **table})
    for name, table in _TABLES.items()
}
"""By `model_type` of `config.json`."""
_SHAPE: TypeAdapter[LanguageShape] = TypeAdapter(Annotated[LanguageShape, Checked(valid_shape)])


def shape_of(folder: Path) -> LanguageShape:
    """The numbers of the model in a folder, as its `config.json` states them.

    Raises:
        BadFileError: the file is missing or damaged, or a number is not valid.
        ExportError: its architecture or a value is not supported.
    """
    path = folder / CONFIG
    config = read_json_object(path)
    architecture = _named_architecture(path, config)
    values: dict[str, object] = dict(architecture.always)
    for _, rule, value in architecture.stated(config):
        if "of" in rule and value is not None:
            values |= _of_card(str(rule["of"]), value)
    width, heads = values.get("width"), values.get("heads")
    if isinstance(width, int) and isinstance(heads, int) and heads:
        # What configurations leave out where it is usual.
        values = {"head_size": width // heads, "kv_heads": heads, "hidden": 4 * width} | values
    if values.get("embedding_width") == width:
        values.pop("embedding_width", None)
    shape = checked(_SHAPE, values, str(path))
    _architecture(folder, shape)
    return shape


def _of_card(name: str, value: object) -> dict[str, object]:
    """A value of `config.json` as a card states it; nothing if no card can."""
    if name == "activation":
        known = {word: one for one, words in _ACTIVATIONS.items() for word in words}
        return {name: known[str(value)]} if str(value) in known else {}
    if name == "has_all_biases":
        return {"bias": Bias.ALL if value else Bias.NONE}
    return {"embedding_width" if name == "table_width" else name: value}


# The tensors of safetensors files, which may be damaged or hostile; nothing in them is executed.

_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
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


MEMORY_FILE = f"{MEMORY}.safetensors"
"""What a network that reads segments has beside a published model, under our own names."""
CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
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
        architecture = _architecture(folder, shape)
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
        if found is None or found.shape != shape or found.dtype not in _FLOATS:
            raise ExportError(
                f"{path} does not give {name} as floats of {list(shape)}, and the model has no "
                "trained memory without it",
                f"save all weights whose names begin with {MEMORY}. in this file, use seeded "
                "weights, or turn the memory off with n0",
            )
        with torch.no_grad():
            parameters[name].copy_(load_tensor(found))


def _named_architecture(path: Path, config: Mapping[str, object]) -> Architecture:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ExportError(
            f"{path}: key 'model_type': {shortened(str(model_type))} is not supported",
            f"use a checkpoint of one of {', '.join(ARCHITECTURES)}, or export this one: "
            f"`optimum-cli export onnx --model {shlex.quote(str(path.parent))} exported/`",
        )
    return ARCHITECTURES[model_type]


def _architecture(folder: Path, shape: LanguageShape) -> Architecture:
    path = folder / CONFIG
    config = read_json_object(path)
    architecture = _named_architecture(path, config)
    model_type = config["model_type"]
    if not architecture.fits(shape):
        raise ExportError(
            f"{path}: key 'model_type': the card does not describe a {model_type}",
            "use the card of that model",
        )
    if (found := architecture.disagreement(config, shape)) is not None:
        key, stated, needed = found
        words = " or ".join(map(str, needed)) if isinstance(needed, tuple) else needed
        raise ExportError(
            f"{path}: key '{key}' is {shortened(str(stated))}, and the card needs {words}",
            "use the checkpoint of this model, or a card with the numbers of the checkpoint",
        )
    return architecture


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
        if stored[one.name].shape != one.stored_shape or stored[one.name].dtype not in _FLOATS
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
