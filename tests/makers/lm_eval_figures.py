"""Writes `tests/data/lm_eval/figures.json` with lm-evaluation-harness; not run by the tests.

Run it in an environment of its own with `lm-eval`, `torch` and this checkout on `PYTHONPATH`:

    python tests/makers/lm_eval_figures.py

The network is fleetrank's seeded stories260k in eager PyTorch; tokens are bytes. The harness's own
class for PyTorch models cuts windows, encodes pairs and adds up; only the forward pass and the
tokens are replaced.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import torch
from lm_eval import __version__, simple_evaluate
from lm_eval.models.huggingface import HFLM

from fleetrank.foundation.inputs import Workload
from fleetrank.models.cards.card import Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.networks.weights import network_with_weights

FOLDER = Path(__file__).parents[1] / "data" / "lm_eval"
WINDOW, CHOICE_WINDOW = 64, 256
_MODEL = resolve(load_cards(Path("cards")).find("stories260k"))
_CHOICES = {
    "sst2": (
        "{{sentence}}\nQuestion: Is this sentence positive or negative?\nAnswer:",
        "label",
        ["negative", "positive"],
    ),
    "rte": (
        "{{sentence1}}\nQuestion: {{sentence2}} True or False?\nAnswer:",
        "label",
        ["True", "False"],
    ),
    "boolq": ("{{passage}}\nQuestion: {{question}}?\nAnswer:", "{{answer|int}}", ["no", "yes"]),
    "mrpc": (
        "Sentence 1: {{sentence1}}\nSentence 2: {{sentence2}}\nQuestion: Do both sentences mean "
        "the same thing?\nAnswer:",
        "label",
        ["no", "yes"],
    ),
}


def _network() -> torch.nn.Module:
    inputs = _MODEL.sized_inputs(Workload.parse("score@8").axes, 1)
    network, _ = network_with_weights(_MODEL.card, Weights(), is_trusted=False, inputs=inputs)
    network.scores_every_token = True
    return network


class SeededStories(HFLM):
    """The harness's class, without its loading of published models."""

    def __init__(self, window: int) -> None:
        self._window, self._network = window, _network()
        self._device = torch.device("cpu")
        self._rank, self._world_size, self.backend = 0, 1, "causal"
        self.batch_size_per_gpu = self.batch_schedule = self.max_batch_size = 1
        self.batch_sizes, self.task_dict, self.chat_template_args = {}, {}, {}
        self.truncation = self.logits_cache = self.add_bos_token = self.enable_thinking = False
        self.softmax_dtype = self.accelerator = self.mixed_precision_dtype = None
        self.think_end_token, self.custom_prefix_token_id = None, 0
        self.cache_hook = type("NoCache", (), {"add_partial": lambda *_: None})()

    max_length = property(lambda self: self._window)
    eot_token_id = prefix_token_id = rank = property(lambda _: 0)
    world_size = batch_size = property(lambda _: 1)
    tokenizer_name = property(lambda _: "bytes")

    def tok_encode(self, string: str, *_: object, **__: object) -> list[int]:
        return list(string.encode())

    def _model_call(self, inps: torch.Tensor, **_: object) -> torch.Tensor:
        shape, count = _MODEL.card.language, inps.shape[1]
        size = (1, shape.kv_heads, count, shape.head_size)
        caches = [torch.zeros(size) for _ in range(2 * shape.layers)]
        with torch.inference_mode():
            return self._network(inps, torch.arange(count), *caches)[0]

    def get_model_info(self) -> dict[str, object]:
        return {}


def _task(name: str, **options: object) -> dict[str, object]:
    files = {"validation": str(FOLDER / f"{name}.jsonl")}
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "validation_split": "validation",
        **options,
    }


def _metrics(*names: str) -> list[dict[str, str]]:
    return [{"metric": name} for name in names]


def main() -> None:
    """Writes the figures."""
    text = _task(
        "text",
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=_metrics("bits_per_byte", "byte_perplexity"),
    )
    tasks = [
        _task(
            name,
            output_type="multiple_choice",
            doc_to_text=prompt,
            doc_to_target=target,
            doc_to_choice=choices,
            metric_list=_metrics("acc", "acc_norm", *(["f1"] if name == "mrpc" else [])),
        )
        for name, (prompt, target, choices) in _CHOICES.items()
    ]
    of_text = simple_evaluate(model=SeededStories(WINDOW), tasks=[text])["results"]["text"]
    found = simple_evaluate(model=SeededStories(CHOICE_WINDOW), tasks=tasks, log_samples=True)
    figures = {
        "tool": f"lm-evaluation-harness {__version__}",
        "made_by": "tests/makers/lm_eval_figures.py",
        "date": datetime.now(UTC).date().isoformat(),
        "model": f"stories260k, seeded weights 0, eager PyTorch {torch.__version__}",
        "tokenizer": "UTF-8 bytes, prefix 0",
        "text": {"window": WINDOW, **_plain(of_text)},
        "choices": {
            "window": CHOICE_WINDOW,
            "tasks": {name: _plain(found["results"][name]) for name in _CHOICES},
            "log_probabilities": {
                name: [[float(one[0]) for one in each["filtered_resps"]] for each in samples]
                for name, samples in found["samples"].items()
            },
        },
    }
    (FOLDER / "figures.json").write_text(json.dumps(figures, indent=1))


def _plain(results: dict[str, object]) -> dict[str, object]:
    ends = ",none"
    return {
        name.removesuffix(ends): value
        for name, value in results.items()
        if name.endswith(ends) and "stderr" not in name
    }


if __name__ == "__main__":
    main()
