"""What an architecture requires of `config.json`, and what its checkpoints call the layers."""

import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.user_file import Checked, checked
from fleetrank.foundation.visible_text import shortened
from fleetrank.models.cards.language import Activation, Bias, LanguageShape, valid_shape
from fleetrank.models.errors import ExportError

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
    architecture_of(folder, shape)
    return shape


def _of_card(name: str, value: object) -> dict[str, object]:
    """A value of `config.json` as a card states it; nothing if no card can."""
    if name == "activation":
        known = {word: one for one, words in _ACTIVATIONS.items() for word in words}
        return {name: known[str(value)]} if str(value) in known else {}
    if name == "has_all_biases":
        return {"bias": Bias.ALL if value else Bias.NONE}
    return {"embedding_width" if name == "table_width" else name: value}


CONFIG = "config.json"


def _named_architecture(path: Path, config: Mapping[str, object]) -> Architecture:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ExportError(
            f"{path}: key 'model_type': {shortened(str(model_type))} is not supported",
            f"use a checkpoint of one of {', '.join(ARCHITECTURES)}, or export this one: "
            f"`optimum-cli export onnx --model {shlex.quote(str(path.parent))} exported/`",
        )
    return ARCHITECTURES[model_type]


def architecture_of(folder: Path, shape: LanguageShape) -> Architecture:
    """The architecture of a folder, if the card describes it."""
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
