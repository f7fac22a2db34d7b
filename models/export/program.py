"""What an exporter writes: a network, the calls that its file answers, and the names of tensors."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetrank.foundation.workload import WorkloadKind
from fleetrank.models.networks.examples import Arguments

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A network and the calls that its file answers.

    Attributes:
        arguments: the call that is exported, with exactly these shapes; of `generate`, the prompt.
        step: the same call for one token of `generate`; `None` for every other workload. ONNX and
            `.pt2` files hold one graph whose number of tokens is free, the others two graphs.
        input_names: in the order of the arguments; empty leaves names to the exporter.
    """

    network: "torch.nn.Module"
    arguments: Arguments
    step: Arguments | None = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    @property
    def calls(self) -> dict[str, Arguments]:
        """The two graphs of `generate` by name (`phase_of`); empty for every other workload."""
        if self.step is None:
            return {}
        return {WorkloadKind.PREFILL.value: self.arguments, WorkloadKind.DECODE.value: self.step}

    @property
    def weight_bytes(self) -> int:
        """Of all parameters, each once."""
        return sum(one.numel() * one.element_size() for one in self.network.parameters())

    def named(self, arguments: Arguments) -> "dict[str, torch.Tensor]":
        """Arguments by the names of inputs."""
        return dict(zip(self.input_names, arguments, strict=True))

    def trace(self) -> "torch.export.ExportedProgram":
        """One graph for all calls: sizes in which the calls differ are free."""
        import torch

        differing = [
            {axis: size for axis, size in enumerate(prompt.shape) if size != step.shape[axis]}
            for prompt, step in zip(self.arguments, self.step or self.arguments, strict=True)
        ]
        most = max((size for sizes in differing for size in sizes.values()), default=None)
        if most is None:
            return torch.export.export(self.network, self.arguments)
        free = torch.export.Dim("prompt_tokens", min=1, max=most)
        shapes = tuple(dict.fromkeys(sizes, free) for sizes in differing)
        return torch.export.export(self.network, self.arguments, dynamic_shapes=shapes)


def with_names(
    network: "torch.nn.Module", input_names: tuple[str, ...], output_names: tuple[str, ...]
) -> "torch.nn.Module":
    """The same network, whose `forward` has these arguments and returns a dict with these keys.

    Exporters name tensors after arguments and keys. A network around it would change the names of
    its layers, which profiles show.
    """
    compute = network.forward

    def forward(*arguments: "torch.Tensor", **named: "torch.Tensor") -> "dict[str, torch.Tensor]":
        given = (*arguments, *(named[name] for name in input_names[len(arguments) :]))
        outputs = compute(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return dict(zip(output_names, outputs, strict=True))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in input_names]
    # torch.export reads the names of arguments from the signature.
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    network.forward = forward
    return network
