"""A decoder of two layers with the signature of the built-in ones, and its files in all formats."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Runtime
from fleetrank.foundation.workload import Workload, WorkloadKind

LAYERS, HEADS, SIZE, VOCABULARY = 2, 2, 8, 61
WIDTH = HEADS * SIZE
NAMES = tuple(f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("keys", "values"))


class TinyDecoder(nn.Module):
    """Attention over a static cache, written in the flat form."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.mixes = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.outs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.requires_grad_(False)

    def forward(self, tokens: Tensor, positions: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        batch, count = tokens.shape
        slots = caches[0].shape[2]
        mask = torch.where(torch.arange(slots) <= positions[:, None], 0.0, -1e9)
        rows = (torch.arange(0, batch * HEADS * slots, slots)[:, None] + positions).flatten()
        x = self.embedding(tokens)
        written: list[Tensor] = []
        for number, (mix, out) in enumerate(zip(self.mixes, self.outs, strict=True)):
            parts = mix(x).reshape(batch, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
            kept = []
            for new, cache in zip(parts[1:], caches[2 * number :], strict=False):
                flat = cache.reshape(-1, SIZE).index_copy(0, rows, new.reshape(-1, SIZE))
                kept.append(flat.reshape(cache.shape))
            keys, values = kept
            scores = parts[0] @ keys.transpose(-1, -2) / SIZE**0.5 + mask
            seen = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, count, WIDTH)
            x = x + torch.tanh(out(seen))
            written += kept
        return (x[:, -1] @ self.embedding.weight.T, *written)


def inputs_of(workload: Workload, batch: int = 1) -> tuple[ModelInput, ...]:
    """As the cards of the built-in decoders state them."""
    tokens, slots = workload.prompt_tokens or 0, workload.context_tokens or 0
    ids = Values(low=0.0, high=float(VOCABULARY - 1))
    cache = (batch, HEADS, slots, SIZE)
    return (
        ModelInput(name="tokens", shape=(batch, tokens), dtype="int64", values=ids),
        ModelInput(
            name="positions", shape=(tokens,), dtype="int64", values=Values(counts_to=slots)
        ),
        *(
            ModelInput(
                name=name, shape=cache, dtype="float32", values=Values(), state=f"next_{name}"
            )
            for name in NAMES
        ),
    )


def execution_of(runtime: Runtime, backend: str, text: str, batch: int = 1) -> Execution:
    """One thread, the workload and the inputs that follow from it."""
    workload = Workload.parse(text)
    return Execution(
        runtime=runtime,
        backend=backend,
        batch=batch,
        inputs=inputs_of(workload, batch),
        workload=workload,
    )


def example(workload: Workload, batch: int = 1) -> tuple[Tensor, ...]:
    """Arguments of the sizes of a workload."""
    tokens, positions, *caches = inputs_of(workload, batch)
    return (
        torch.zeros(tokens.shape, dtype=torch.int64),
        torch.arange(positions.shape[0]),
        *(torch.zeros(cache.shape) for cache in caches),
    )


def teacher_forced(tokens: np.ndarray, slots: int) -> list[np.ndarray]:
    """Logits after each token of one pass over all of them, (batch, vocabulary) each."""
    network, batch = TinyDecoder().eval(), tokens.shape[0]
    caches = [torch.zeros(batch, HEADS, slots, SIZE) for _ in NAMES]
    made = []
    for place in range(tokens.shape[1]):
        given = torch.from_numpy(tokens[:, : place + 1].astype(np.int64))
        logits, *_ = network(given, torch.arange(place + 1), *caches)
        made.append(logits.numpy())
    return made


def save(folder: Path, runtime: Runtime, text: str, batch: int = 1) -> Path:
    """Writes the file of a workload in the form that the exporters give it."""
    workload = Workload.parse(text)
    path = folder / f"{text}-{batch}.{_SUFFIXES[runtime]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters' own libraries
        _WRITERS[runtime](path, workload, batch)
    return path


def _steps(workload: Workload) -> Workload:
    return Workload(kind=WorkloadKind.DECODE, length=workload.context_tokens)


def _program(workload: Workload, batch: int) -> torch.export.ExportedProgram:
    arguments = example(workload, batch)
    if workload.steps is None:
        return torch.export.export(TinyDecoder().eval(), arguments)
    free = torch.export.Dim("count", min=1, max=workload.context_tokens)
    shapes = ({1: free}, {0: free}, *({} for _ in NAMES))
    dynamic = {"tokens": shapes[0], "positions": shapes[1], "caches": shapes[2:]}
    return torch.export.export(TinyDecoder().eval(), arguments, dynamic_shapes=dynamic)


def _save_onnx(path: Path, workload: Workload, batch: int) -> None:
    torch.onnx.export(
        _program(workload, batch),
        (),
        str(path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=["tokens", "positions", *NAMES],
        output_names=["logits", *(f"next_{name}" for name in NAMES)],
    )


def _save_pt2(path: Path, workload: Workload, batch: int) -> None:
    torch.export.save(_program(workload, batch), str(path))


def _save_tflite(path: Path, workload: Workload, batch: int) -> None:
    """In a child: JAX, which the converter imports, warns of every later fork of its process."""
    command = [sys.executable, "-P", "-W", "ignore", __file__, str(path), str(workload), str(batch)]
    subprocess.run(command, check=True, capture_output=True)


def _convert(path: Path, workload: Workload, batch: int) -> None:
    import litert_torch

    network, arguments = TinyDecoder().eval(), example(workload, batch)
    if workload.steps is None:
        litert_torch.convert(network, arguments).export(str(path))
        return
    steps = example(_steps(workload), batch)
    both = litert_torch.signature("prefill", network, arguments).signature("decode", network, steps)
    both.convert().export(str(path))


def _save_pte(path: Path, workload: Workload, batch: int) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    network = TinyDecoder().eval()
    programs = {"forward": torch.export.export(network, example(workload, batch))}
    if workload.steps is not None:
        steps = example(_steps(workload), batch)
        programs = {"prefill": programs["forward"], "decode": torch.export.export(network, steps)}
    parts = {name: [XnnpackPartitioner()] for name in programs}
    lowered = to_edge_transform_and_lower(programs, partitioner=parts).to_executorch()
    with path.open("wb") as file:
        lowered.write_to_file(file)


_SUFFIXES = {runtime: format_.value for format_, runtime in RUNTIME_OF_FORMAT.items()}
_WRITERS = {
    Runtime.ONNX: _save_onnx,
    Runtime.TORCH: _save_pt2,
    Runtime.TFLITE: _save_tflite,
    Runtime.EXECUTORCH: _save_pte,
}


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Workload.parse(sys.argv[2]), int(sys.argv[3]))
