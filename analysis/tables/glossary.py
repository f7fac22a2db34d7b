"""The words that tables and page use, with their meaning; a part of docs/glossary.md."""

from collections.abc import Mapping
from types import MappingProxyType

TERMS: Mapping[str, str] = MappingProxyType(
    {
        "family": "`standard_cnn`, `mobile_cnn`, `efficient_cnn`, `transformer`, `hybrid`, of text "
        "`gpt`, `opt`, `neox`, `llama`, `encoder`; or `other`",
        "MACs": "multiply-accumulate operations of one inference at batch 1",
        "FLOPs": "2 x MACs, counted on the traced graph",
        "device": "one unit: this CPU, that phone",
        "device model": (
            "the type of a device; two phones of one type are two devices and one device model"
        ),
        "tier": "`gpu`, `cpu` or `edge`",
        "origin": (
            "`measured`, `imported`, `virtual` or `simulated`; only the first two enter the tables "
            "by default"
        ),
        "runtime": "what executes an artifact: ONNX Runtime, PyTorch, LiteRT, ExecuTorch",
        "backend": (
            "the execution provider or delegate of a runtime, such as `cpu`, `cuda`, `xnnpack`"
        ),
        "platform": (
            "device, runtime, backend, mode, precision, batch, threads, affinity and options "
            "together"
        ),
        "sweep": "one execution of a plan: many cells, each measured several times",
        "cell": "one model on one platform",
        "repeat": "one measurement of a cell, in a fresh process",
        "attempt": "one try at a repeat; a failed repeat can be tried again",
        "process median": (
            "the median of the samples of one repeat; every interval and test uses these"
        ),
        "statistic": (
            "what one latency is: `median`, `mean` or `minimum` of the times of one process; an "
            "imported source or a tool may give no median"
        ),
        "placement": "the nodes of a graph that ran on the backend, of all its nodes",
        "cold start": "loading and first inference, before the warm-up",
        "peak memory": "the growth over the baseline during the timed runs",
        "flag": "a quality warning about one row; a flagged row still counts",
        "ratio": "a value divided by the geometric mean over the models of one platform",
        "FRM": "the cube root of the product of the ratios of FLOPs, latency and memory",
        "Spearman's rho, Kendall's tau-b": "rank correlations between -1 and 1",
        "interval": "a 95 % confidence interval by bootstrap over models",
        "null model": (
            "the same figure after the latencies are shuffled; what chance and FLOPs alone give"
        ),
        "residual null": (
            "rho if only what FLOPs explain of latency transfers: what FLOPs do not explain is "
            "shuffled"
        ),
        "headroom": "(rho - null) / (1 - null): what is left above the null model",
        "ceiling": "the highest rho that the noise of the measurements permits",
        "Pareto frontier": "the models that no other model beats in all objectives",
        "frontier precision, recall": (
            "the share of predicted frontier models that are right, and of right ones that are "
            "predicted"
        ),
        "regret": ("what is lost by choosing with the source's ranking instead of the target's"),
    }
)
"""In the order of docs/glossary.md."""

_TERM_OF_COLUMN: Mapping[str, str] = MappingProxyType(
    {
        "platform_key": "platform", "n_repeats": "repeat", "fewest_repeats": "repeat",
        "flags": "flag", "flag": "flag", "flops": "FLOPs", "macs": "MACs", "frm": "FRM",
        "rho": "Spearman's rho, Kendall's tau-b", "tau": "Spearman's rho, Kendall's tau-b",
        "null_mean": "null model", "null_p95": "null model", "share_of_ceiling": "ceiling",
        "residual_null_mean": "residual null", "residual_p": "residual null",
        "residual_p_adjusted": "residual null",
        "recall": "frontier precision, recall", "sweep_id": "sweep", "attempts": "attempt",
        "device_model": "device model",
    }
)  # fmt: skip


def meaning_of_column(name: str) -> str | None:
    """What the word in a column's heading means; `None` if the glossary does not have it."""
    meaning = TERMS.get(_TERM_OF_COLUMN.get(name, name))
    return None if meaning is None else meaning.replace("`", "")
