"""Formats of exported files: how a network is written in each, and how a user's file is checked.

Adding a format is one entry of `EXPORTERS`. Libraries are imported when they are used.
"""

import contextlib
import inspect
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import described
from fleetrank.foundation.inputs import ModelInput, Workload, WorkloadKind, step_of
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, FlopsMethod, Format, Precision
from fleetrank.models.cards.card import (
    GROUP,
    LANGUAGE_RECIPES,
    RECIPES,
    Cost,
    ExportRequest,
    Source,
    own_format,
)
from fleetrank.models.errors import ExportError, LibraryError
from fleetrank.models.files import check_tflite_scales, check_tflite_states
from fleetrank.models.networks.build import INPUT_SEED, Arguments, Array, Examples
from fleetrank.models.number_types import check_buffers

if TYPE_CHECKING:
    import torch

# What an exporter writes: a network, the calls that its file answers, and the names of tensors.


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


# Makes the ONNX exporter's search for patterns linear; what it finds is the same.
#
# Source: onnxscript 0.7.2, `rewriter/_matcher.py`: for a pattern with several last nodes,
# `SimplePatternMatcher.match` first sorts all nodes of the graph by operator, also where the
# given node cannot be the first of them. It is called for every node, so the time grows with the
# square of the graph: of a decoder with 30 layers it was half of the export.


@contextlib.contextmanager
def direct_search() -> Iterator[None]:
    """Compares the operator of the given node first; in another version it changes nothing."""
    try:
        from onnxscript.rewriter import MatchResult, _matcher

        matcher = _matcher.SimplePatternMatcher
        whole_search = matcher.match
    except (ImportError, AttributeError):
        yield
        return

    def match(self, model, graph_or_function, node, **options):  # type: ignore[no-untyped-def]
        pattern = self.pattern
        if not pattern.has_single_output_node:
            wanted = pattern.output_nodes[0].op_identifier()
            if wanted is not None and wanted != node.op_identifier():
                return MatchResult().fail("the node has another operator")
        return whole_search(self, model, graph_or_function, node, **options)

    matcher.match = match
    try:
        yield
    finally:
        matcher.match = whole_search


_TFLITE_IDENTIFIER = b"TFL3"
ONLY_SIGNATURE, ONLY_METHOD = "serving_default", "forward"
"""Of a file with one graph; the names that LiteRT and ExecuTorch give it."""
_PTE_IDENTIFIER = re.compile(rb"ET\d\d")
_SOURCE_LIBRARY = {Source.TORCHVISION: ("torchvision",), Source.TIMM: ("timm",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes one self-contained file of one format; ONNX can need a second one for its weights.

    Attributes:
        libraries: distributions that the export uses; their versions are stored with the file.
        extra: the extra to install if a distribution is missing: `fleetrank[EXTRA]`.
        peak_memory_bytes: highest resident size measured over the 13 built-in networks of images,
            rounded up; determines how many exports run in parallel.
        weight_copies: of a language model's weights that are held at once beside that, at most;
            seen between decoders of 15 and 135 million parameters, rounded up.
        export: writes a network for inputs of exactly the shapes of its calls. Raises the
            library's exceptions; the caller converts them to an `ExportError`.
        copy: checks a user's file without running it, and writes it as one file. Returns the
            counted cost, or `None`. Raises `ExportError`.
        copy_libraries, copy_extra: distributions that `copy` uses, and their extra.
        precisions: of weights, inputs and arithmetic, which share one type. Beside these, the
            integers of `RECIPES`.
        recipe_libraries: distributions that the recipes use.
    """

    libraries: tuple[str, ...]
    extra: str
    peak_memory_bytes: int
    export: Callable[[Program, Path], None]
    copy: Callable[[Path, Path, ExportRequest], Cost | None]
    copy_libraries: tuple[str, ...] = ()
    copy_extra: str = ""
    precisions: tuple[str, ...] = ("fp32",)
    recipe_libraries: tuple[str, ...] = ()
    weight_copies: float = 5.0


def why_not_precision(request: ExportRequest) -> str | None:
    """The reason why a network cannot be written in this precision; `None` for a user's file."""
    known = exporter_of(request.format).precisions
    if request.card.source is Source.FILE or request.precision in known:
        return None
    if request.recipe is not None:
        return _why_not_groups(request)
    recipes = RECIPES if request.card.language is None else LANGUAGE_RECIPES
    known += tuple(word for format_, word in recipes if format_ is request.format)
    if request.format is Format.PT2 and request.precision == Precision.INT8:
        return "pt2 cannot be exported in precision 'int8': eager PyTorch would compute it in fp32"
    *others, last = known
    return (
        f"{request.format} cannot be exported in precision {request.precision!r}, only in "
        f"{', '.join(others)}{' or ' if others else ''}{last}"
    )


def _why_not_groups(request: ExportRequest) -> str | None:
    shape, is_grouped = request.card.language, request.precision == Precision.INT4
    if shape is None or not is_grouped or request.format is not Format.PTE:
        return None
    uneven = sorted(width for width in shape.widths_read if width % GROUP)
    if not uneven:
        return None
    return (
        f"{request.card.name} cannot be exported to pte in precision 'int4': weights are in "
        f"groups of {GROUP}, which do not divide a width of {' or '.join(map(str, uneven))}"
    )


def library_versions(request: ExportRequest) -> tuple[tuple[str, str], ...]:
    """(name, version) of the distributions that an export uses, sorted by name.

    Raises:
        LibraryError: a distribution is not installed; the remedy names the extra.
    """
    exporter, card = exporter_of(request.format), request.card
    libraries, extra = exporter.libraries + _SOURCE_LIBRARY.get(card.source, ()), exporter.extra
    if request.recipe is not None:
        libraries += exporter.recipe_libraries
    if card.source is Source.FILE:
        libraries, extra = ("tensorflow-cpu",), "tensorflow"
        if own_format(card) is not None:
            libraries, extra = exporter.copy_libraries, exporter.copy_extra
    try:
        return tuple(sorted((name, metadata.version(name)) for name in libraries))
    except metadata.PackageNotFoundError as error:
        raise LibraryError(
            f"{error.name} is not installed", f"pip install 'fleetrank[{extra}]'"
        ) from error


def _export_onnx(program: Program, path: Path) -> None:
    """Uses the dynamo exporter; weights that are too large for the file are beside it."""
    import torch

    from fleetrank.models import files

    network, arguments = program.network, program.arguments
    with direct_search():
        torch.onnx.export(
            network if program.step is None else program.trace(),
            arguments if program.step is None else (),
            str(path),
            input_names=program.input_names or None,
            output_names=program.output_names or None,
            dynamo=True,
            external_data=program.weight_bytes > files.LARGEST_BYTES,
            verbose=False,
        )
    files.name_weights(path)


def _copy_onnx(source: Path, path: Path, request: ExportRequest) -> Cost:
    from fleetrank.models.files import stage_onnx

    step_inputs = replace(request, workload=step_of(request.workload)).inputs
    return stage_onnx(
        source, path, request.card.input_size, request.inputs, request.batch, step_inputs
    )


def _export_pt2(program: Program, path: Path) -> None:
    """An archive of `torch.export` runs without the model's source code."""
    import torch

    torch.export.save(program.trace(), str(path))


def _copy_pt2(source: Path, path: Path, _request: ExportRequest) -> None:
    remedy = "save it again with torch.export.save"
    explained = failing_as(ExportError, f"{source} is not a .pt2 archive", remedy)
    with explained, zipfile.ZipFile(source) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ExportError(
            f"{source} is damaged: {damaged} does not match its checksum",
            "copy it again, or save it again with torch.export.save",
        )
    shutil.copyfile(source, path)


def _export_tflite(program: Program, path: Path) -> None:
    """Input and output keep PyTorch's layout (channels first); `generate` has two signatures.

    LiteRT turns whole numbers of 64 bits into 32 bits.
    """
    import litert_torch

    if not program.input_names:
        litert_torch.convert(program.network, program.arguments).export(str(path))
        return
    converter = litert_torch.Converter()
    for name, arguments in (program.calls or {ONLY_SIGNATURE: program.arguments}).items():
        converter.add_signature(name, program.network, (), program.named(arguments))
    converter.convert().export(str(path))


def _copy_tflite(source: Path, path: Path, request: ExportRequest) -> None:
    """Static checks of a FlatBuffer; the worker's runtime detects the remaining errors."""
    data = source.read_bytes()
    if len(data) < 8 or data[4:8] != _TFLITE_IDENTIFIER:
        raise ExportError(f"{source} is not a TFLite model", "export it again, or correct the path")
    try:
        check_buffers(data)
        check_tflite_scales(data, source)
        check_tflite_states(data, source, request.inputs)
    except (struct.error, ValueError, IndexError) as error:
        raise ExportError(
            f"{source} is damaged: the file is truncated", "copy or export it again"
        ) from error
    shutil.copyfile(source, path)


def _export_pte(program: Program, path: Path) -> None:
    """Lowered to XNNPACK; other operators use ExecuTorch's own kernels.

    `generate` has two methods. A tied head is stored twice: XNNPACK packs it for its product.
    """
    import torch

    graphs = {
        name: torch.export.export(program.network, arguments)
        for name, arguments in (program.calls or {ONLY_METHOD: program.arguments}).items()
    }
    write_pte(graphs, path)


def write_pte(graphs: "dict[str, torch.export.ExportedProgram]", path: Path) -> None:
    """Lowers the graph of each method to XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(graphs, partitioner=[XnnpackPartitioner()])
    with path.open("wb") as file:
        lowered.to_executorch().write_to_file(file)


def _copy_pte(source: Path, path: Path, _request: ExportRequest) -> None:
    """Checks only the identifier; the runtime verifies the whole program when it loads it."""
    with source.open("rb") as file:
        head = file.read(8)
    if not _PTE_IDENTIFIER.fullmatch(head[4:8]):
        raise ExportError(
            f"{source} is not an ExecuTorch program", "export it again, or correct the path"
        )
    shutil.copyfile(source, path)


EXPORTERS: Mapping[Format, Exporter] = {
    Format.ONNX: Exporter(
        libraries=("onnx", "onnxscript", "torch"),
        extra="onnx,torch",
        peak_memory_bytes=1100 * BYTES_PER_MIB,
        export=_export_onnx,
        copy=_copy_onnx,
        copy_libraries=("onnx",),
        copy_extra="onnx",
        recipe_libraries=("onnxruntime",),
        precisions=("fp32", "fp16"),  # ONNX Runtime lacks bfloat16 convolutions
        weight_copies=4.0,
    ),
    Format.PT2: Exporter(
        libraries=("torch",),
        extra="torch",
        peak_memory_bytes=800 * BYTES_PER_MIB,
        export=_export_pt2,
        copy=_copy_pt2,
        precisions=("fp32", "fp16", "bf16"),
        weight_copies=2.0,
    ),
    Format.TFLITE: Exporter(
        libraries=("litert-converter", "litert-torch", "torch"),
        extra="tflite",
        peak_memory_bytes=1500 * BYTES_PER_MIB,
        export=_export_tflite,
        copy=_copy_tflite,
        recipe_libraries=("ai-edge-litert", "ai-edge-quantizer"),
    ),
    Format.PTE: Exporter(
        libraries=("executorch", "torch"),
        extra="executorch",
        peak_memory_bytes=900 * BYTES_PER_MIB,
        export=_export_pte,
        copy=_copy_pte,
        recipe_libraries=("torchao",),
    ),
}


def exporter_of(format_: Format) -> Exporter:
    """How a format is written; a format of another package is copied only."""
    return EXPORTERS.get(format_, _OUTSIDE)


def _copy_outside(source: Path, path: Path, request: ExportRequest) -> Cost | None:
    with failing_as(
        ExportError,
        f"{source} is not a .{request.format} file",
        "export it again, or correct the path",
        ValueError,
    ):
        facts = described(request.format, str(source))
    shutil.copyfile(source, path)
    return Cost(macs=facts.macs, parameters=facts.parameters, method=FlopsMethod.FORMULA)


def _never_exported(_program: Program, path: Path) -> None:
    raise ExportError(
        f"no network is exported to {path.suffix}",
        "give a file in this format, or name another runtime for the network",
    )


_OUTSIDE = Exporter(
    libraries=(),
    extra="",
    peak_memory_bytes=300 * BYTES_PER_MIB,
    export=_never_exported,
    copy=_copy_outside,
)


# Inputs and PyTorch's outputs, which a worker's outputs are compared with.
#
# The file of inputs holds `input_0`, `input_1`, ..., and the file of outputs `output_0`, .... A
# model with states is verified by a sequence: the states of one inference feed the next. Its file
# of inputs holds, for each input, the values of all inferences; for a state only a few numbers,
# which are repeated until they fill the first one, and `every_K`: of the last state, each so
# many-th value is an output. So neither file grows with the cache. Of `generate`, `input_K` are
# those of the prompt, and `step_K` those of the steps after it.

STEPS = 8
"""Steps of a decoder, if its context has so many."""
_PROMPTS = 2
"""Inferences over whole prompts or texts: the second one must not see the first one's cache."""
_STATE_NUMBERS = 4099
"""Repeated to fill a state; a prime number, so that no two slots of a cache are equal."""
_STATE_SAMPLES = 1 << 16
"""Values of each last state that are compared, at most: 16 MB for 64 states."""

_Files = tuple[Path, Path]
_Call = tuple[int, int]
"""Number of tokens of one inference, and the position of the first one."""


def write_reference(network: "torch.nn.Module", examples: Examples, out_dir: Path) -> _Files:
    """Runs the network over its examples; returns the paths of inputs and of outputs.

    Raises:
        ExportError: the network returns no tensor, or values that are not finite.
    """
    import torch

    with torch.inference_mode():
        slices = [_tensors(network(*call)) for call in examples.calls]
    outputs = [np.concatenate(list(map(np.atleast_1d, each))) for each in zip(*slices, strict=True)]
    inputs = {f"input_{number}": array for number, array in enumerate(examples.stored)}
    return _save(out_dir, inputs, outputs)


def write_sequence(
    network: "torch.nn.Module", inputs: Sequence[ModelInput], workload: Workload, out_dir: Path
) -> _Files:
    """Runs a language model inference after inference; the same files.

    A decoder starts from a seeded cache. `prefill@T`: two prompts of T tokens. `decode@C`: tokens
    at the last 8 positions of the context. `generate@P+N`: a prompt and up to 8 steps. `encode@T`
    and `segment@L`: two texts. Tokens are seeded: no step depends on the one before it but by its
    states.

    Raises:
        ExportError: the outputs hold values that are not finite.
    """
    sequence = _Sequence(inputs=tuple(inputs), rng=np.random.default_rng(INPUT_SEED))
    prompts, steps = _calls(workload)
    stored = {f"input_{k}": array for k, array in sequence.values(prompts).items()}
    if workload.kind is WorkloadKind.GENERATE:
        stored |= {f"step_{k}": array for k, array in sequence.values(steps).items()}
    states = sequence.first_states()
    stored |= {f"input_{k}": numbers for k, numbers in states.items()}
    # Odd, so that samples do not all lie in the same places of a head.
    every = {k: -(-int(np.prod(inputs[k].shape)) // _STATE_SAMPLES) | 1 for k in states}
    stored |= {f"every_{k}": np.array(stride) for k, stride in every.items()}
    rows, last = _run(network, inputs, stored, states)
    outputs = [np.concatenate(each) for each in zip(*rows, strict=True)]
    samples = [state.reshape(-1)[:: every[k]] for k, state in zip(states, last, strict=True)]
    return _save(out_dir, stored, [*outputs, *samples])


def _calls(workload: Workload) -> tuple[list[_Call], list[_Call]]:
    """The inferences at once, and those that follow a prompt of `generate`."""
    length = workload.length or 0
    if workload.kind is WorkloadKind.DECODE:
        n_steps = min(STEPS, length)
        return [(1, length - n_steps + number) for number in range(n_steps)], []
    if workload.kind is WorkloadKind.GENERATE:
        n_steps = min(STEPS, (workload.generated or 1) - 1)
        return [(length, 0)], [(1, length + number) for number in range(n_steps)]
    return [(length, 0)] * _PROMPTS, []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    inputs: tuple[ModelInput, ...]
    rng: np.random.Generator

    def values(self, calls: Sequence[_Call]) -> dict[int, Array]:
        """By number of the input, the values of each inference; states are not among them."""
        return {
            number: np.stack([self._one(each, call) for call in calls])
            if calls
            else np.zeros((0, *each.shape), each.dtype)
            for number, each in enumerate(self.inputs)
            if each.state is None
        }

    def first_states(self) -> dict[int, Array]:
        """By number of the input, the few numbers that fill the first state."""
        return {
            number: self._state_numbers(each)
            for number, each in enumerate(self.inputs)
            if each.state is not None
        }

    def _state_numbers(self, each: ModelInput) -> Array:
        """Token ids for a state of these, normal numbers for all others."""
        if np.dtype(each.dtype).kind == "f":
            return self.rng.standard_normal(_STATE_NUMBERS, dtype=np.float32)
        low, high = int(each.values.low or 0), int(each.values.high or 0)
        return self.rng.integers(low, high, _STATE_NUMBERS, endpoint=True).astype(each.dtype)

    def _one(self, each: ModelInput, call: _Call) -> Array:
        n_tokens, first = call
        shape = (*each.shape[:-1], n_tokens)
        if each.values.counts_to is not None:
            return np.broadcast_to(np.arange(first, first + n_tokens, dtype=each.dtype), shape)
        low, high = int(each.values.low or 0), int(each.values.high or 0)
        return self.rng.integers(low, high, shape, endpoint=True).astype(each.dtype)


def _run(
    network: "torch.nn.Module",
    inputs: Sequence[ModelInput],
    stored: Mapping[str, Array],
    first_states: Mapping[int, Array],
) -> tuple[list[list[Array]], list[Array]]:
    """The outputs of each inference that are not states, and the last states."""
    import torch

    states = [np.resize(numbers, inputs[k].shape) for k, numbers in first_states.items()]
    rows: list[list[Array]] = []
    names = [name for name in ("input", "step") if f"{name}_0" in stored]
    with torch.inference_mode():
        for name in names:
            for number in range(len(stored[f"{name}_0"])):
                given = iter(states)
                call = [
                    next(given) if k in first_states else stored[f"{name}_{k}"][number]
                    for k in range(len(inputs))
                ]
                outputs = _tensors(network(*(torch.from_numpy(array) for array in call)))
                n_results = len(outputs) - len(states)
                rows.append(outputs[:n_results])
                states = outputs[n_results:]
    return rows, states


def _tensors(output: object) -> list[Array]:
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(output)
    return [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def write_check(inputs_path: Path, reference_path: Path) -> Path:
    """Both files in one, which goes to each device that runs the exported file."""
    path = inputs_path.with_name("check.npz")
    with np.load(inputs_path) as inputs, np.load(reference_path) as outputs:
        np.savez(path, **inputs, **outputs)
    return path


def _save(out_dir: Path, inputs: Mapping[str, Array], outputs: Sequence[Array]) -> _Files:
    if not outputs:
        raise ExportError("the network returns no tensor", "return a tensor or a tuple of tensors")
    if not all(np.isfinite(output).all() for output in outputs):
        raise ExportError(
            "the network's output is not finite", "check its weights and normalisation"
        )
    inputs_path, reference_path = out_dir / "inputs.npz", out_dir / "reference.npz"
    named = {f"output_{number}": output for number, output in enumerate(outputs)}
    # NumPy's stub takes every keyword for its flag `allow_pickle`.
    np.savez(inputs_path, **inputs)  # type: ignore[arg-type]
    np.savez(reference_path, **named)  # type: ignore[arg-type]
    return inputs_path, reference_path
