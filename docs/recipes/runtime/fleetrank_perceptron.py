"""The runtime `perceptron`: multilayer perceptrons in NumPy.

A file is what `numpy.savez` writes: `weight_0` of shape (inputs, outputs), `bias_0` of shape
(outputs,), `weight_1`, and so on. ReLU is between the layers.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.foundation.formats import FileFacts
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Precision

Layers = Sequence[tuple[Array, Array]]


def read_layers(path: str) -> Layers:
    """The layers of a file.

    Raises:
        ValueError: it is not such a file.
    """
    with np.load(path, allow_pickle=False) as file:
        n_layers, odd = divmod(len(file.files), 2)
        names = [(f"weight_{n}", f"bias_{n}") for n in range(n_layers)]
        if odd or not names or {*sum(names, ())} != {*file.files}:
            raise ValueError(f"its arrays are {', '.join(file.files)[:100]}")
        layers = [(file[weight], file[bias]) for weight, bias in names]
    for weight, bias in layers:
        is_float = weight.dtype == bias.dtype and weight.dtype in (np.float32, np.float64)
        if not (is_float and weight.ndim == 2 and bias.shape == weight.shape[1:]):
            raise ValueError(f"weights of {weight.shape}, bias of {bias.shape}, {weight.dtype}")
    if any(one.shape[1] != following.shape[0] for (one, _), (following, _) in pairwise(layers)):
        raise ValueError("a layer does not take what the layer before it gives")
    return layers


class Perceptron:
    """One network; it fulfils `LoadedModel`."""

    settings: Options = ()

    def __init__(self, layers: Layers, batch: int) -> None:
        first, _ = layers[0]
        self.inputs = (ModelInput(name="x", shape=(batch, first.shape[0]), dtype=first.dtype.name),)
        self._layers = layers
        self._x: Array = np.empty(0)
        self._y: Array = np.empty(0)

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Keeps the input."""
        (self._x,) = arrays

    def run(self) -> None:
        """Runs one inference."""
        values = self._x
        for number, (weight, bias) in enumerate(self._layers):
            values = values @ weight + bias
            if number + 1 < len(self._layers):
                values = np.maximum(values, 0)
        self._y = values

    def outputs(self) -> list[Array]:
        """The output of the last run."""
        return [self._y.copy()]


class PerceptronRunner:
    """Backend `numpy`, one thread."""

    format = "npz"
    capability = Capability(
        backends=("numpy",), precisions=frozenset({Precision.FP32, Precision.FP64})
    )
    library = Library(distribution="numpy", module="numpy")

    def version(self) -> str:
        """The version of NumPy."""
        return np.__version__

    def describe(self, path: str) -> FileFacts:
        """Type and number of the weights; each weight of a matrix is one multiply-accumulate."""
        layers = read_layers(path)
        macs = sum(weight.size for weight, _ in layers)
        n_biases = sum(bias.size for _, bias in layers)
        return FileFacts(weight_type=layers[0][0].dtype.name, parameters=macs + n_biases, macs=macs)

    def admit(self, path: str) -> str:
        """Accepts every file: arrays without pickled objects contain no code."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads a file."""
        if execution.threads != 1:
            raise UnsupportedError(
                f"a perceptron runs on 1 thread, not {execution.threads}", "set `threads` to 1"
            )
        try:
            return Perceptron(read_layers(path), execution.batch)
        except Exception as error:  # NumPy raises many classes for a damaged file
            raise BadArtifactError(f"not a perceptron: {error}", "save the file again") from error
