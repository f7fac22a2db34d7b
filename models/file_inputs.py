"""The inputs that a model file states, as a card states them."""

import re
from collections.abc import Sequence
from pathlib import Path

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ModelCard, own_format
from fleetrank.models.cards.inputs import AXIS_NAME, BATCH, LONGEST_AXIS, CardInput
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.number_types import UNREADABLE, read_inputs

_BATCH_NAME = re.compile(r"b|n|bs|.*batch.*", re.IGNORECASE)
"""Names that exporters give the axis of samples."""
_NO_NAME = re.compile(
    r"|\?|-1|none|s\d+|unk__\d+|dim_?\d+|dyn\w*\d*|\w*_dim_\d+|\w*dynamic_axes_\d+",
    re.IGNORECASE,
)
"""What exporters give an axis without a name: PyTorch, tf2onnx, ONNX, Paddle."""
_AXIS = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_SUM = re.compile(
    rf"({_AXIS.pattern}|\d{{1,9}})(( *[+*] *| +- +)({_AXIS.pattern}|\d{{1,9}})){{1,3}}", re.ASCII
)
"""What some exporters write in place of a name: how the size follows from other axes."""


def inputs_of(path: Path, format_: Format) -> tuple[CardInput, ...]:
    """The inputs of a model file in its order, with free axes as names.

    A free axis that is named like a batch is `batch`; without such a name a free first axis that
    has no name is. A first axis with another name, such as `n_nodes`, is an axis like others: one
    node is not a batch of 1. Other axes keep the file's name in lower case; one without a name
    is called after its input and place. A size such as `past + 1` follows from its axes.

    Raises:
        CardError: the file is not a model of this format, or an input is not a tensor of numbers.
    """
    remedy = "export it again, or correct the path"
    with failing_as(CardError, f"{path} is not a readable .{format_} model", remedy):
        found = read_inputs(path, format_)
    for one in found:
        if not one.dtype:
            raise CardError(
                f"{path}: input {one.name!r} is not a tensor of numbers",
                "use a model whose inputs are numbers",
            )
    names = _AxisNames(found)
    return tuple(
        CardInput(name=one.name, shape=names.named(one.name, one.sizes), dtype=one.dtype)
        for one in found
    )


def check_sizes(card: ModelCard) -> None:
    """Checks that a file whose inputs its card does not state leaves only the batch open.

    ONNX files may also leave height and width open if the card gives `input_size`. A file that
    cannot be read passes: its export reports what is wrong with it.

    Raises:
        ExportError: names file, input and axis.
    """
    format_ = own_format(card)
    if format_ is None or card.inputs:
        return
    try:
        found = read_inputs(Path(card.entry), format_)
    except UNREADABLE:
        return
    for one in found:
        free = [axis for axis, size in enumerate(one.sizes) if axis and isinstance(size, str)]
        is_image = format_ is Format.ONNX and len(one.sizes) == 4 and len(free) == 2
        if not free or (is_image and card.input_size is not None):
            continue
        what = f"{card.entry}: input {one.name!r}"
        if is_image:
            raise ExportError(
                f"{what} has dynamic height and width", "give input_size in the card, in pixels"
            )
        raise ExportError(
            f"{what} has dynamic dimensions besides the batch: "
            f"{', '.join(f'axis {axis}' for axis in free)}",
            "state its sizes with [[inputs]] in the card, or export it with all sizes fixed except "
            "the first, the batch",
        )


class _AxisNames:
    """Gives each free axis of a file a name that a card accepts."""

    def __init__(self, inputs: Sequence[StoredInput]) -> None:
        sizes = {size for one in inputs for size in one.sizes if isinstance(size, str)}
        self._stated = {size for size in sizes if _AXIS.fullmatch(size)}
        sizes = set(map(self._spaced, sizes))
        free = {x for one in sizes for x in (_AXIS.findall(one) if _SUM.fullmatch(one) else [one])}
        self._batch = {name for name in free if _BATCH_NAME.fullmatch(name)}
        self._first_is_batch = not self._batch
        if self._first_is_batch:
            # A `.pt2` has no names of axes: its reader calls them after their input and place.
            self._batch = {
                size
                for one in inputs
                for size in one.sizes[:1]
                if isinstance(size, str) and size
                if size == f"{one.name}_0" or _NO_NAME.fullmatch(size)
            }
        self._known: dict[str, str] = {}
        for name in sorted(filter(re.compile(AXIS_NAME).fullmatch, free)):
            self._name(name)  # it needs no change, wherever the file has it

    def named(self, name: str, sizes: Sequence[int | str]) -> tuple[int | str, ...]:
        """The sizes of an input with the names of its axes."""
        return tuple(
            size if isinstance(size, int) else self._axis(size, name, place)
            for place, size in enumerate(sizes)
        )

    def _axis(self, symbol: str, name: str, place: int) -> str:
        if not symbol and place == 0 and self._first_is_batch:
            return BATCH
        symbol = self._spaced(symbol)
        if _SUM.fullmatch(symbol):
            named = _AXIS.sub(lambda found: self._name(found[0]), symbol)
            return re.sub(r" *([+*]| -) *", lambda found: f" {found[1].strip()} ", named)
        return self._name(symbol or f"{name}_{place}")

    def _spaced(self, symbol: str) -> str:
        """`seq - 1` for `seq-1` where another axis is `seq`; else it is a name with a hyphen."""
        parts = symbol.split("-")
        is_difference = all(part in self._stated or part.isdecimal() for part in parts)
        return " - ".join(parts) if is_difference else symbol

    def _name(self, key: str) -> str:
        if key in self._batch:
            return BATCH
        if key not in self._known:
            wanted = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
            wanted = wanted if wanted[:1].isalpha() else f"axis_{wanted}"
            wanted = wanted[:LONGEST_AXIS].rstrip("_")
            stem = wanted[: LONGEST_AXIS - 4]
            names = [wanted, *(f"{stem}_{number}" for number in range(2, 1000))]
            taken = {*self._known.values(), BATCH}
            self._known[key] = next(one for one in names if one not in taken)
        return self._known[key]
