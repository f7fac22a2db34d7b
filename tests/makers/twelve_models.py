"""A workspace with a model of each kind that a user may bring; the makers need onnx and torch."""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from tiny_onnx import save_tiny_onnx

DATA = Path(__file__).parents[1] / "models/data"
_RNG = np.random.default_rng(0)

ENTRY_POINTS = '''
import torch


class TwoInputs(torch.nn.Module):
    """Token ids with a mask of the tokens that count."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, ids, mask):
        tokens = self.table(ids) * mask.unsqueeze(-1)
        return self.last(tokens.sum(dim=1))


def two_inputs():
    return TwoInputs()


def with_examples():
    return TwoInputs(), (torch.full((1, 6), 7), torch.ones(1, 6, dtype=torch.bool))


def small():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
'''

IDS = """
[[inputs]]
name = "ids"
shape = ["batch", "seq"]
dtype = "int64"
values = { below = 50 }
"""
MASK = """
[[inputs]]
name = "mask"
shape = ["batch", "seq"]
dtype = "bool"
values = { constant = 1 }
"""
CARDS = {
    "two_inputs": 'source = "file"\nentry = "two_inputs.onnx"\n'
    '[[inputs]]\nname = "x"\nshape = ["batch", 8]\n[[inputs]]\nname = "mask"\n'
    'shape = ["batch", 8]\ndtype = "bool"\n',
    "lstm": 'source = "file"\nentry = "lstm.onnx"\n[[inputs]]\nname = "x"\n'
    'shape = ["time", "batch", 4]\n',
    "encoder": f'source = "file"\nentry = "encoder.pt2"\nfamily = "transformer"\n{IDS}',
    "half": 'source = "file"\nentry = "half.onnx"\n',
    "bytes": 'source = "file"\nentry = "uint8.tflite"\n',
    "forest": 'source = "file"\nentry = "forest.onnx"\n',
    "keras": 'source = "file"\nentry = "tiny.keras"\n',
    "program": 'source = "file"\nentry = "program.pt2"\n',
    "external": 'source = "file"\nentry = "external.onnx"\n',
    "entry": 'source = "entry_point"\nentry = "nets:two_inputs"\naxes = { seq = 6 }\n' + IDS + MASK,
    "trained": 'source = "entry_point"\nentry = "nets:small"\ninput_size = 16\n',
    "broken": 'source = "file"\nentry = "broken.onnx"\n',
}
SPEC = """name: kinds
models: [{models}]
runtimes: [onnx, torch, tflite]
axes: {{time: [8, 16], seq: [16, 32]}}
repeats: 1
weights_of: {{trained: {{kind: checkpoint, path: ../cards/trained.pt}}}}
measure: {{min_warmup_s: 0.0, min_runs: 20, max_time_s: 0.2}}
limits: {{max_attempts: 1}}
"""


def write_models(workspace: Path) -> None:
    """Writes the cards, their files and the sweep `kinds`."""
    cards = workspace / "cards"
    _write_onnx(cards)
    _write_torch(workspace)
    shutil.copy(DATA / "uint8.tflite", cards)
    shutil.copy(DATA / "tiny.keras", cards)
    (cards / "broken.onnx").write_text("this is a text file")
    for name, text in CARDS.items():
        (cards / f"{name}.toml").write_text(text)
    (workspace / "sweeps/kinds.yaml").write_text(SPEC.format(models=", ".join(CARDS)))


GRAPHS = {
    "two_inputs": """two (float[n,8] x, bool[n,8] mask) => (float[n,3] y) {
        kept = Where(mask, x, zero)
        y = MatMul(kept, w)
    }""",
    "lstm": """lstm (float[time,n,4] x) => (float[time,1,n,5] y) {
        y = LSTM <hidden_size=5> (x, w, r)
    }""",
    "half": "half (float16[n,8] x) => (float16[n,8] y) { y = MatMul(x, w) }",
    # Two trees of one split each, as skl2onnx writes a RandomForestRegressor.
    "forest": """forest (float[n,2] x) => (float[n,1] y) {
        y = ai.onnx.ml.TreeEnsembleRegressor <
            n_targets=1, aggregate_function="SUM",
            nodes_treeids=[0,0,0,1,1,1], nodes_nodeids=[0,1,2,0,1,2],
            nodes_featureids=[0,0,0,1,0,0],
            nodes_modes=["BRANCH_LEQ","LEAF","LEAF","BRANCH_LEQ","LEAF","LEAF"],
            nodes_values=[0.5,0.0,0.0,-0.5,0.0,0.0],
            nodes_truenodeids=[1,0,0,1,0,0], nodes_falsenodeids=[2,0,0,2,0,0],
            target_treeids=[0,0,1,1], target_nodeids=[1,2,1,2], target_ids=[0,0,0,0],
            target_weights=[1.0,2.0,3.0,4.0]
        > (x)
    }""",
}
WEIGHTS = {
    "two_inputs": {
        "w": _RNG.standard_normal((8, 3), dtype=np.float32),
        "zero": np.zeros((), dtype=np.float32),
    },
    "lstm": {
        name: _RNG.standard_normal((1, 20, size), dtype=np.float32)
        for name, size in (("w", 4), ("r", 5))
    },
    "half": {"w": np.ones((8, 8), dtype=np.float16)},
    "forest": {},
}
_ML = helper.make_opsetid("ai.onnx.ml", 3)


def _write_onnx(folder: Path) -> None:
    for name, text in GRAPHS.items():
        graph = onnx.parser.parse_graph(text)
        graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in WEIGHTS[name].items())
        opsets = [helper.make_opsetid("", 17), *([_ML] if name == "forest" else [])]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.save(model, str(folder / f"{name}.onnx"))
    model = onnx.load(str(save_tiny_onnx(folder / "external.onnx")))
    (folder / "external.onnx").unlink()
    beside = {"location": "external.onnx.data", "size_threshold": 0}
    onnx.save(model, str(folder / "external.onnx"), save_as_external_data=True, **beside)


class Encoder(torch.nn.Module):
    """Token ids of any length to one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(ids)).mean(dim=1)


def _write_torch(workspace: Path) -> None:
    cards = workspace / "cards"
    torch.manual_seed(0)
    length = torch.export.Dim("length", min=2, max=64)
    ids = torch.ones(1, 8, dtype=torch.int64)
    program = torch.export.export(Encoder().eval(), (ids,), dynamic_shapes=({1: length},))
    torch.export.save(program, cards / "encoder.pt2")
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    example = torch.zeros(2, 8)
    program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, cards / "program.pt2")
    (workspace / "nets.py").write_text(ENTRY_POINTS)
    trained = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    torch.save(trained.state_dict(), cards / "trained.pt")


if __name__ == "__main__":
    write_models(Path(sys.argv[1]))
