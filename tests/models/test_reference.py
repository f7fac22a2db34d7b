"""What a language model's file is verified with: small files, and the values of a plain loop."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.inputs import sized
from fleetrank.models.cards.language import LanguageShape, language_inputs
from fleetrank.models.export.reference import write_sequence
from fleetrank.models.networks.decoder import Decoder

SHAPE = LanguageShape(
    layers=2, width=16, heads=4, kv_heads=2, head_size=8, hidden=24, vocabulary=31, context=2048
)


def write(
    workload: str, folder: Path, batch: int = 1
) -> tuple[Decoder, dict[str, np.ndarray], dict[str, np.ndarray]]:
    torch.manual_seed(0)
    network, asked = Decoder(SHAPE).eval(), Workload.parse(workload)
    inputs = sized(language_inputs(SHAPE), asked.axes, batch, {})
    paths = write_sequence(network, inputs, asked, folder)
    stored, outputs = (dict(np.load(path)) for path in paths)
    return network, stored, outputs


@pytest.mark.slow
def test_the_files_do_not_grow_with_the_cache(tmp_path: Path) -> None:
    _network, stored, outputs = write("decode@2048", tmp_path, batch=8)
    cache_bytes = 4 * 8 * 2 * 2048 * 8 * 4
    assert cache_bytes > 4e6
    for arrays in (stored, outputs):
        assert sum(array.nbytes for array in arrays.values()) < cache_bytes / 3
    assert outputs["output_0"].shape == (8 * 8, SHAPE.vocabulary)


@pytest.mark.slow
def test_positions_and_tokens_are_those_of_the_workload(tmp_path: Path) -> None:
    _network, decode, _outputs = write("decode@5", tmp_path)
    assert decode["input_1"].ravel().tolist() == [0, 1, 2, 3, 4]
    assert decode["input_0"].shape == (5, 1, 1)
    _network, generate, _outputs = write("generate@3+20", tmp_path)
    assert generate["input_1"].tolist() == [[0, 1, 2]]
    assert generate["step_1"].ravel().tolist() == list(range(3, 11))
    assert int(generate["input_0"].max()) < SHAPE.vocabulary


@pytest.mark.slow
def test_steps_after_a_prompt_give_what_one_longer_prompt_gives(tmp_path: Path) -> None:
    network, stored, outputs = write("generate@6+6", tmp_path)
    steps = stored["step_0"][:, 0]
    tokens = np.concatenate([stored["input_0"][0, 0], steps[:, 0]])
    for number in range(len(steps) + 1):
        n_tokens = 6 + number
        inputs = sized(language_inputs(SHAPE), Workload.parse(f"prefill@{n_tokens}").axes, 1, {})
        caches = [torch.zeros(each.shape) for each in inputs[2:]]
        with torch.inference_mode():
            logits, *_caches = network(
                torch.from_numpy(tokens[None, :n_tokens]), torch.arange(n_tokens), *caches
            )
        np.testing.assert_allclose(outputs["output_0"][number], logits[0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_second_prompt_does_not_see_the_cache_of_the_first(tmp_path: Path) -> None:
    network, stored, outputs = write("prefill@6", tmp_path)
    inputs = sized(language_inputs(SHAPE), Workload.parse("prefill@6").axes, 1, {})
    for number, tokens in enumerate(stored["input_0"]):
        with torch.inference_mode():
            call = (torch.from_numpy(tokens), torch.arange(6))
            logits = network(*call, *(torch.ones(each.shape) for each in inputs[2:]))[0]
        np.testing.assert_allclose(outputs["output_0"][number], logits[0], rtol=1e-4, atol=1e-5)
