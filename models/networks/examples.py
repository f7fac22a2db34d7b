"""The inputs that a network is calibrated, counted, exported and verified with.

Seeded inputs are the same numbers on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.inputs import ModelInput
from fleetrank.models.errors import ExportError

if TYPE_CHECKING:
    import torch

CASES = 16
"""Number of inputs that an artifact is verified with."""
INPUT_SEED = 20_180_601
Array = npt.NDArray[np.generic]
Arguments = tuple["torch.Tensor", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Arguments of a network for each purpose.

    Attributes:
        fit: calls that calibrate seeded weights.
        probe: one call that shows the scale of the output.
        counted: one call, whose cost counts for `counted_batch` samples.
        calls: calls whose outputs are the reference for verification.
        traced: the call that is exported, with exactly these shapes.
        stored: one array for each input, with the cases of `calls` along the first axis.
        has_whole_cases: each case of `stored` is a whole input; otherwise it is one image, and
            images are put together to a batch.
    """

    fit: tuple[Arguments, ...]
    probe: Arguments
    counted: Arguments
    counted_batch: int
    calls: tuple[Arguments, ...]
    traced: Arguments
    stored: tuple[Array, ...]
    has_whole_cases: bool


def image_examples(size: int, batch: int, seed: int = INPUT_SEED) -> Examples:
    """Images of height and width `size`; at least 16, and a multiple of the batch."""
    n_cases = batch * -(-CASES // batch)
    images = seeded_images(n_cases, size, seed)
    # The same images as in verification, so that they match the fitted statistics.
    fitted = images[:CASES]
    return Examples(
        fit=((fitted,),),
        probe=(fitted[:4],),
        counted=(images[:1],),
        counted_batch=1,
        # Runs with the same batch size, since a network may behave differently for another size.
        calls=tuple((part,) for part in images.split(batch)),
        # A copy, because torch.export would store the whole tensor behind a slice.
        traced=(images[:batch].clone(),),
        stored=(images.numpy(),),
        has_whole_cases=False,
    )


def stated_examples(
    inputs: Sequence[ModelInput], batch: int, *, cases: int = CASES, seed: int = INPUT_SEED
) -> Examples:
    """Seeded values for the inputs that a card states, `cases` times.

    Raises:
        ExportError: a file with values cannot be read, or has another shape or type.
    """
    rng = np.random.default_rng(seed)
    return whole_examples([_cases(one, rng, cases) for one in inputs], batch)


def given_examples(tensors: Sequence["torch.Tensor"], batch: int) -> Examples:
    """The tensors that an entry point returned; they are the only case.

    Raises:
        ExportError: they are for another batch.
    """
    if batch > 1 and any(tensor.ndim == 0 or len(tensor) != batch for tensor in tensors):
        raise ExportError(
            f"the example inputs are for another batch than {batch}",
            "state [[inputs]] with an axis 'batch' in the card, or measure at batch 1",
        )
    return whole_examples([tensor.detach().numpy()[None] for tensor in tensors], batch)


def whole_examples(stored: Sequence[Array], batch: int) -> Examples:
    """Examples of whole cases: an array of shape (cases, ...) for each input."""
    import torch

    # Copies: PyTorch warns about read-only memory, and exports a view with its base.
    calls = tuple(
        tuple(torch.from_numpy(np.array(array[case])) for array in stored)
        for case in range(len(stored[0]) if stored else 0)
    )
    return Examples(
        fit=calls,
        probe=calls[0],
        counted=calls[0],
        counted_batch=batch,
        calls=calls,
        traced=calls[0],
        stored=tuple(stored),
        has_whole_cases=True,
    )


def _cases(one: ModelInput, rng: np.random.Generator, cases: int) -> Array:
    """Values of shape (cases, *shape)."""
    values, dtype, shape = one.values, np.dtype(one.dtype), (cases, *one.shape)
    if values.path is not None:
        return np.repeat(_read(one, Path(values.path))[None], cases, axis=0)
    if isinstance(values.counts_to, int):
        counted = np.arange(values.counts_to - one.shape[-1], values.counts_to, dtype=dtype)
        return np.broadcast_to(counted, shape).copy()
    if dtype.kind == "f" and values.low is None:
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    low, high = values.low, values.high
    if low is None or high is None:
        info = np.iinfo(dtype) if dtype.itemsize == 1 and dtype.kind in "iu" else None
        low, high = (0, 1) if info is None else (info.min, info.max)
    if dtype.kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    return rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)


def _read(one: ModelInput, path: Path) -> Array:
    message = f"the values of input {one.name!r} cannot be read"
    with failing_as(ExportError, message, "save them with numpy.save, as one array"):
        found: Array = np.load(path, allow_pickle=False)[...]  # an archive is not an array
    if found.shape != one.shape or found.dtype != np.dtype(one.dtype):
        raise ExportError(
            f"the values of input {one.name!r} in {path} have shape {found.shape} and type "
            f"{found.dtype}, not {one.shape} and {one.dtype}",
            "save an array of the stated shape and type, or correct the card",
        )
    return found


def seeded_images(count: int, size: int, seed: int = INPUT_SEED) -> "torch.Tensor":
    """Standard normal images of shape (count, 3, size, size), as normalised photographs are."""
    import torch

    # NumPy's generator, not torch's, because NumPy guarantees its stream across versions.
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, 3, size, size), dtype=np.float32)
    return torch.from_numpy(values)
