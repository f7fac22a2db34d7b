"""The inputs that a model file states, as a card states them."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleetrank.foundation.inputs.model_input import Values
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ModelCard, own_format
from fleetrank.models.cards.inputs import BATCH, CardInput
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.files.onnx_signature import onnx_inputs
from fleetrank.models.number_types.file_types import UNREADABLE
from fleetrank.models.number_types.pt2_types import pt2_inputs
from fleetrank.models.number_types.pte_types import pte_inputs
from fleetrank.models.number_types.stored_types import StoredInput
from fleetrank.models.number_types.tflite_types import tflite_inputs

_BATCH_NAMES = frozenset({"b", "n", "bs", "batch", "batch_size", "batchsize", "batch_dim"})
"""Names that exporters give the axis of samples, in lower case."""
_LONGEST_AXIS = 20


_READERS: Mapping[Format, Callable[[Path], list[StoredInput]]] = {
    Format.ONNX: lambda path: onnx_inputs(path.read_bytes()),
    Format.PT2: pt2_inputs,
    Format.TFLITE: lambda path: tflite_inputs(path.read_bytes()),
    Format.PTE: lambda path: pte_inputs(path.read_bytes()),
}


def inputs_of(path: Path, format_: Format) -> tuple[CardInput, ...]:
    """The inputs of a model file in its order, with free axes as names.

    A free axis that is named like a batch is `batch`; without such a name the free first axis is.
    Other axes keep the file's name in lower case; one without a name is called after its input and
    place.

    Raises:
        CardError: the file is not a model of this format, or an input is not a tensor of numbers.
    """
    try:
        found = _READERS[format_](path)
    except UNREADABLE as error:
        raise CardError(
            f"{path} is not a readable .{format_} model: {error}",
            "export it again, or correct the path",
        ) from error
    for one in found:
        if not one.dtype:
            raise CardError(
                f"{path}: input {one.name!r} is not a tensor of numbers",
                "use a model whose inputs are numbers",
            )
    names = _AxisNames([one.sizes for one in found])
    return tuple(
        CardInput(
            name=one.name, shape=names.named(one.name, one.sizes), dtype=one.dtype, values=Values()
        )
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
        found = _READERS[format_](Path(card.entry))
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

    def __init__(self, shapes: Sequence[Sequence[int | str]]) -> None:
        free = {size for sizes in shapes for size in sizes if isinstance(size, str)}
        self._batch = {size for size in free if size.lower() in _BATCH_NAMES}
        self._first_is_batch = not self._batch
        if self._first_is_batch:
            self._batch = {sizes[0] for sizes in shapes if sizes and isinstance(sizes[0], str)}
            self._batch.discard("")
        self._known: dict[str, str] = {}

    def named(self, name: str, sizes: Sequence[int | str]) -> tuple[int | str, ...]:
        """The sizes of an input with the names of its axes."""
        return tuple(
            size if isinstance(size, int) else self._axis(size, name, place)
            for place, size in enumerate(sizes)
        )

    def _axis(self, symbol: str, name: str, place: int) -> str:
        if symbol in self._batch or (not symbol and place == 0 and self._first_is_batch):
            return BATCH
        key = symbol or f"{name}_{place}"
        if key not in self._known:
            wanted = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
            wanted = wanted if wanted[:1].isalpha() else f"axis_{wanted}"
            taken = {*self._known.values(), BATCH}
            self._known[key] = next(one for one in _candidates(wanted) if one not in taken)
        return self._known[key]


def _candidates(wanted: str) -> list[str]:
    wanted = wanted[:_LONGEST_AXIS].rstrip("_")
    return [wanted, *(f"{wanted[: _LONGEST_AXIS - 4]}_{number}" for number in range(2, 1000))]
