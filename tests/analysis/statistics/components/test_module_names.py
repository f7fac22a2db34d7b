"""Names that LiteRT shortens, against the networks they come from."""

import polars as pl
import pytest

from fleetrank.analysis.statistics.components import whole_name, with_whole_names

KNOWN = {"stem", "blocks", "blocks.0", "blocks.0.up", "blocks.1", "blocks.1.up", "head.fc"}


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("0", "blocks.0"),
        ("1.up", "blocks.1.up"),
        ("1.act", "blocks.1.act"),
        ("1.act.2", "blocks.1.act.2"),
        ("blocks.1.up", "blocks.1.up"),
        ("stem", "stem"),
        ("7.up", "7.up"),
        ("norm", "norm"),
        ("", ""),
    ],
)
def test_a_short_name_is_completed(name: str, whole: str) -> None:
    assert whole_name(name, KNOWN) == whole


def test_a_name_that_can_be_two_modules_stays() -> None:
    assert whole_name("0", {"encoder.0", "decoder.0"}) == "0"
    assert whole_name("0.up", {"encoder.0.up", "decoder.0.up"}) == "0.up"


@pytest.mark.thorough
def test_every_called_module_of_a_network_is_found_again() -> None:
    """The short names are made as LiteRT makes them: of the modules around that are called."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, 4)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)
            )

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            values = self.stem(values)
            for block in self.blocks:
                values = block(values)
            return values

    network, called = Net().eval(), []
    for path, module in network.named_modules():
        module.register_forward_hook(lambda *_, path=path: called.append(path))
    network(torch.zeros(1, 4))
    known = {path for path in called if path}
    for path in known:
        around = [one for one in known if path == one or path.startswith(f"{one}.")]
        short = ".".join(one.rpartition(".")[2] for one in sorted(around, key=len))
        assert whole_name(short, known) == path


def test_only_kernels_of_tflite_files_are_renamed() -> None:
    place = {"sweep_id": "s", "model": "net", "workload": "image"}
    kernels = pl.DataFrame(
        [
            {**place, "runtime": runtime, "module": module, "node": node}
            for node, (runtime, module) in enumerate(
                [("onnx", "0"), ("tflite", "0"), ("tflite", None), ("tflite", "stem")]
            )
        ]
    )
    macs = pl.DataFrame([{**place, "module": "blocks.0.up"}])
    found = with_whole_names(kernels, macs)
    assert found["module"].to_list() == ["0", "blocks.0", None, "stem"]
    assert found.columns == kernels.columns
    assert with_whole_names(kernels, macs.clear()).equals(kernels)
