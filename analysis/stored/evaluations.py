"""The side table `evaluations`: how good a model is on data that the user has.

Each row is one metric of one evaluation, so that new metrics need no new columns.
"""

import polars as pl

from fleetrank.analysis.stored.column import FLOAT, INT, STR, STRS, UTC, Column, column
from fleetrank.analysis.stored.side_table import SideTable

LOWER_IS_BETTER = frozenset({"perplexity", "bits_per_byte"})
"""Metrics of which the smallest value is the best; of all others it is the largest."""
METRICS = (
    "perplexity", "bits_per_byte", "token_top1", "token_top5", "acc", "acc_norm", "f1", "top1",
    "top5",
)  # fmt: skip
_PLAIN_UNITS = {"perplexity": None, "bits_per_byte": "bits per byte"}
TASKS = ("ppl", "sst2", "rte", "boolq", "mrpc", "smallbench", "images")
FLAGS = ("accuracy_differs", "seeded", "limited", "not_finite")
_IDENTITY: tuple[Column, ...] = (
    column("evaluation_id", STR, "one run of `fleetrank eval`; its metrics share it"),
    column("model", STR, "name of the model card"),
    column("family", STR, "family of the model"),
    column("card_sha256", STR, "of the model card"),
    column("weights", STR, "where the weights come from: seeded, or the name of the file"),
    column("weights_sha256", STR, "of the file of weights; null for seeded weights"),
    column("task", STR, "what was evaluated", TASKS),
    column("data", STR, "name of the file or folder of data"),
    column("data_sha256", STR, "of the data"),
    column("tokenizer", STR, "kind and name of the tokenizer; null for images"),
    column("tokenizer_sha256", STR, "of the tokenizer's file; null for bytes and for images"),
    column("strategy", STR, "how a text is read: vanilla, window, hmt+k8+n16; null for others"),
    column("window_tokens", INT, "tokens that the model reads at once; null for images"),
    column("stride_tokens", INT, "new tokens in each window of a text; null for other tasks"),
    column("prompts", STR, "set of prompts of a task with choices; null for other tasks"),
    column("item_limit", INT, "only so many items were evaluated; null for all items"),
    column("preprocessing", STR, "JSON object: how images become inputs; null for other tasks"),
)
_FIGURES: tuple[Column, ...] = (
    column("quality_metric", STR, "what `quality` is", METRICS),
    column("quality", FLOAT, "the metric; accuracies and F1 in per cent"),
    column("quality_low", FLOAT, "lower end of the 95 % interval; null if it has none"),
    column("quality_high", FLOAT, "upper end of the 95 % interval; null if it has none"),
    column("baseline", FLOAT, "the metric of always giving the most frequent class, for top5 the "
           "five most frequent; null if the metric has no such baseline"),
    column("n_items", INT, "images, examples, or scored tokens"),
    column("right_items", STR, "which items were right, as hexadecimal bits, the first item first; "
           "null for a metric that is not a share of items"),
    column("window_losses", STR, "of a perplexity, JSON: sum of -ln p and number of tokens of each "
           "window; null for other metrics, and if a sum is not finite"),
    column("n_documents", INT, "documents of a text; null for other tasks"),
    column("n_windows", INT, "windows of a text; null for other tasks"),
    column("n_tokens", INT, "scored tokens of the text, or of all answers; null for images"),
    column("n_bytes", INT, "UTF-8 bytes of the original text; null for other tasks"),
    column("nll_nats", FLOAT, "sum of -ln p over the scored tokens; null for images, and if it is "
           "not finite"),
    column("published", FLOAT, "the published value of the metric; null if unknown"),
    column("published_source", STR, "where the published value stands"),
    column("flags", STRS, f"doubts about the row: {', '.join(FLAGS)}"),
)  # fmt: skip
_WHERE: tuple[Column, ...] = (
    column("device", STR, "device that ran the model"),
    column("runtime", STR, "runtime that ran the model"),
    column("backend", STR, "backend of the runtime"),
    column("precision", STR, "number format of the model"),
    column("recipe", STR, "what made integers of the network, and from what; null: nothing did"),
    column("artifact_sha256", STR, "of the exported file"),
    column("runtime_version", STR, "version of the runtime"),
    column("fleetrank_version", STR, "version that wrote the row"),
    column("git_commit", STR, "commit of the workspace"),
    column("started_utc", UTC, "start of the evaluation; of its last part if it was resumed"),
    column("finished_utc", UTC, "end of the evaluation"),
)


def unit_of_metric(name: str) -> str | None:
    """The unit of `quality`, its interval, the baseline and the published value; `None`: a number.

    The unit is of the metric, so a table of several metrics has a column for it.
    """
    return _PLAIN_UNITS.get(name, "percent")


def newest_evaluations(rows: pl.DataFrame) -> pl.DataFrame:
    """The newest row of each model, weights, data, setting, metric, runtime, file and device.

    Args:
        rows: of the side table.
    """
    same = (
        "model", "card_sha256", "weights", "weights_sha256", "task", "data_sha256",
        "tokenizer_sha256", "strategy", "window_tokens", "stride_tokens", "prompts", "item_limit",
        "preprocessing", "quality_metric", "runtime", "backend", "precision", "recipe", "device",
    )  # fmt: skip
    oldest_first = rows.sort("finished_utc", maintain_order=True)
    newest = oldest_first.unique(subset=same, keep="last", maintain_order=True)
    return newest.sort("task", "data", "model", "finished_utc", maintain_order=True)


EVALUATIONS = SideTable(
    name="evaluations",
    doc="Quality of models on data that the user has; one row per metric.",
    own=(*_IDENTITY, *_FIGURES, *_WHERE),
)
