"""The allowed forms of values in the JSON of a `.pt2`, mainly of texts.

A form takes a value and its key, and returns the value to write. The first lines of this module
list which value has which form, and what PyTorch does with it.
"""

import ast
import json
import keyword
import math
import re
from collections.abc import Callable, Mapping

from fleetrank.foundation.codec import Json

Form = Callable[[Json, str], Json]
"""Raises `UnfitError` for a value that does not have this form."""
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|quantized|quantized_decomposed)\.(?!from_file\b|save\b|__)\w+\."
    r"(?!__)\w+|"
    r"torch\.ops\.aten\.__(and|or|xor|lshift|rshift)__\.\w+|"
    r"torch\.ops\.higher_order\.(cond|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)|"
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|getitem|eq|ne|lt|le|gt|ge|and_|or_|"
    r"not_|xor)|math\.[a-z][a-z0-9]*|torch\.sym_[a-z]+|torch\._sym_[a-z]+",
    re.ASCII,
)
_TEXT = re.compile(r"[\w ,.:;+\-*/%<>=()\[\]]*", re.ASCII)
_NO_NOTE = re.compile(r"[^\w .,;:/()\[\]@=-]", re.ASCII)
_PATH = re.compile(r"([\w\-+:@]+(\.[\w\-+:@]+)*)?", re.ASCII)
_WORDS = re.compile(r"[\w.\-+<=]*", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?", re.ASCII)
_SYMBOL = re.compile(r"(s|u|zf|zuf)\d{1,6}", re.ASCII)
_CONSTANTS = frozenset({"int_oo", "oo", "true", "false"})
_FUNCTIONS = frozenset(
    {"Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float",
     "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "Identity",
     "IntTrueDiv", "Integer", "Le", "LessThan", "LShift", "Lt", "Max", "Min", "Mod",
     "ModularIndexing", "Mul", "Ne", "Not", "Or", "Pow", "PowByNatural", "PythonMod", "RShift",
     "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan", "StrictLessThan", "Symbol",
     "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where"}
)  # fmt: skip
_ASSUMPTIONS = frozenset({"positive", "nonnegative", "negative", "integer", "real", "precision"})
_SYNTAX = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load
)  # fmt: skip
_TREES = frozenset(
    {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
)  # fmt: skip
"""Containers whose description names no module to import; a `defaultdict`'s does."""
_SPECIAL_NUMBERS = frozenset({"Infinity", "-Infinity", "NaN"})
_TAKEN = frozenset({"self", "torch"})
"""Names with a meaning in the generated source."""


class UnfitError(ValueError):
    """A value that does not have its form."""

    def __init__(self, key: str, value: object) -> None:
        super().__init__(f"{key or 'name'} {str(value)[:80]!r}")


def rewritten(text: bytes, form: Form) -> bytes:
    """Rewrites a JSON text from its parsed content, so that it has only one interpretation.

    Raises:
        ValueError: it is not JSON; an `UnfitError` if it has another form.
    """
    try:
        plain: Json = json.loads(text, object_pairs_hook=_no_key_twice)
        return json.dumps(form(plain, ""), allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_key_twice(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


def record(fields: Mapping[str, Form]) -> Form:
    """An object with some of these keys; PyTorch reports a missing key."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        for name in value:
            if name not in fields:
                raise UnfitError(f"{key} with the key", name)
        return {name: fields[name](each, name) for name, each in value.items()}

    return form


def union(fields: Mapping[str, Form]) -> Form:
    """An object with exactly one of these keys."""
    one = record(fields)

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict) or len(value) != 1:
            raise UnfitError(key, value)
        return one(value, key)

    return form


def listed(item: Form) -> Form:
    """A list of values of this form."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, list):
            raise UnfitError(key, value)
        return [item(each, key) for each in value]

    return form


def mapping(names: Form, item: Form) -> Form:
    """An object with any keys of one form."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        return {str(names(name, key)): item(each, key) for name, each in value.items()}

    return form


def optional(item: Form) -> Form:
    """A value of this form, or null."""
    return lambda value, key: None if value is None else item(value, key)


def left_out(value: Json) -> Form:
    """A value that a network does not need; PyTorch gets this replacement."""
    return lambda _value, _key: value


def note(value: Json, key: str) -> Json:
    """A text for display; `_` replaces each character that could end a comment or a string.

    Its length stays the same, because the row's memory figure includes it.
    """
    if not isinstance(value, str):
        raise UnfitError(key, value)
    return _NO_NOTE.sub("_", value)


def boolean(value: Json, key: str) -> Json:
    """True or false."""
    if not isinstance(value, bool):
        raise UnfitError(key, value)
    return value


def integer(value: Json, key: str) -> Json:
    """An integer of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 64:
        raise UnfitError(key, value)
    return value


def number(value: Json, key: str) -> Json:
    """A finite number, or a word that PyTorch writes for one that is not finite."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str) and value in _SPECIAL_NUMBERS:
        return value
    return integer(value, key)


def one_of(values: frozenset[str]) -> Form:
    """One of these words."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, str) or value not in values:
            raise UnfitError(key, value)
        return value

    return form


def matching(pattern: re.Pattern[str]) -> Form:
    """A text that matches completely."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise UnfitError(key, value)
        return value

    return form


def identifier(value: Json, key: str) -> Json:
    """A name that is safe in source code: an identifier, not a keyword, not a `__name__`."""
    if (
        not isinstance(value, str)
        or not (value.isascii() and value.isidentifier())
        or keyword.iskeyword(value)
        or value.startswith("__")
        or value in _TAKEN
    ):
        raise UnfitError(key, value)
    return value


def dotted_path(value: Json, key: str) -> Json:
    """The path of a weight or a submodule from the root; no part is a `__name__`."""
    text = matching(_PATH)(value, key)
    if any(part.startswith("__") for part in str(text).split(".")):
        raise UnfitError(key, value)
    return text


def expression(value: Json, key: str) -> Json:
    """Sums, products, comparisons and known functions of symbols."""
    is_text = isinstance(value, str) and value.isascii()
    try:
        tree = ast.parse(str(value), mode="eval") if is_text else None
    except (SyntaxError, MemoryError) as error:
        raise UnfitError(key, value) from error
    if tree is None or not _is_expression(tree.body):
        raise UnfitError(key, value)
    return ast.unparse(tree)


def _is_expression(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _is_call(node)
    if isinstance(node, ast.Name):
        return node.id in _CONSTANTS or _SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float)
    return isinstance(node, _SYNTAX) and all(map(_is_expression, ast.iter_child_nodes(node)))


def _is_call(node: ast.Call) -> bool:
    """Strings are allowed only in `Symbol` and `Float`, as sympy's `srepr` writes them."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
        return False
    for word in node.keywords:
        is_plain = isinstance(word.value, ast.Constant) and isinstance(word.value.value, int)
        if word.arg not in _ASSUMPTIONS or not is_plain:
            return False
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        form = {"Symbol": _SYMBOL, "Float": _DECIMAL}.get(node.func.id)
        return form is not None and len(node.args) == 1 and bool(form.fullmatch(first.value))
    return node.func.id != "Symbol" and all(map(_is_expression, node.args))


def range_key(value: Json, key: str) -> Json:
    """The key of a range; it must stay as PyTorch wrote it, because PyTorch looks it up."""
    expression(value, key)
    return value


def tree_spec(keys: Form) -> Form:
    """A tree specification: builtin containers; their only context is a list of `keys`."""

    def form(value: Json, key: str) -> Json:
        plain: Json = json.loads(value) if isinstance(value, str) else None
        if not (isinstance(plain, list) and len(plain) == 2 and plain[0] == 1):
            raise UnfitError(key, value)
        return json.dumps([1, node(plain[1], key)])

    def node(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        kind, children = value.get("type"), value.get("children_spec")
        if kind is not None:
            one_of(_TREES)(kind, key)
        context = value.get("context")
        names: Json = json.loads(context) if isinstance(context, str) else context
        if names is not None:
            names = listed(keys)(names, key)
        return {
            "type": kind,
            "context": None if kind is None else json.dumps(names),
            "children_spec": listed(node)(children, key),
        }

    return form


operator = matching(_TARGET)
plain_text = matching(_TEXT)
version_text = matching(_WORDS)
