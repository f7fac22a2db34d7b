"""What a language model costs for each token, and how near it comes to the peaks of its device."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.inputs.workload import Workload, WorkloadKind
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S

_MJ_PER_J = 1e3
_MIB = {
    "weights_mib": "weight_bytes", "state_mib": "state_bytes", "moved_mib": "bytes_moved",
    "peak_memory_mib": "peak_memory_bytes",
}  # fmt: skip
NAMES: Mapping[WorkloadKind, str] = MappingProxyType(
    {
        WorkloadKind.PREFILL: "ttft",
        WorkloadKind.DECODE: "itl",
        WorkloadKind.GENERATE: "itl",
        WorkloadKind.SEGMENT: "segment",
        WorkloadKind.ENCODE: "latency",
    }
)
"""What the latency of a workload is called: it begins the columns of table `tokens`."""
MEANINGS: Mapping[WorkloadKind, str] = MappingProxyType(
    {
        WorkloadKind.PREFILL: "Latency is the time to first token (TTFT): one pass over the prompt "
        "into an empty cache, with the logits of its last token; no tokenising and no sampling.",
        WorkloadKind.DECODE: "Latency is the inter-token latency (ITL): one step at the last slot "
        "of a full cache, which gives each sequence of the batch one token; no sampling.",
        WorkloadKind.GENERATE: "Latency is the inter-token latency (ITL) of the steps after the "
        "prompt; ttft is the time of the prompt.",
        WorkloadKind.SEGMENT: "Latency is the time to read one segment of a long text: a summary "
        "of its first half, recall from the memories, and one pass; rates count new tokens.",
        WorkloadKind.ENCODE: "Latency is one forward pass over the tokens.",
    }
)
_RATE = (
    "tokens_per_s: tokens of one sample, in all sequences of the batch, over its median time. "
    "Prompts and steps have columns of different names, because their rates are not comparable."
)
_UTILISATION = (
    "mfu: operations of one sample, counted or by formula, over its time and the device's peak; "
    "mbu: bytes of weights and cache that one sample moves, over its time and the bandwidth. "
    "Null without a probe of the device's peaks."
)
_BYTES = (
    "weights_mib counts shared weights once; state_mib is the cache of all sequences, or the "
    "memories of segments; moved_mib is what one sample reads and writes of both; flops_per_byte "
    "is operations over moved bytes."
)
_ENERGY = "j_per_token: energy of one sample over its tokens; null where no energy was read."


def tokens_table(session: Session) -> Table:
    """Tokens per second, energy for each token, MFU and MBU of each model on each platform.

    Raises:
        NoDataError: the rows are of a workload without tokens.
    """
    workload = workload_with_tokens(session)
    scope = session.cells
    name, has_prompt = NAMES[workload.kind], workload.kind is WorkloadKind.GENERATE
    latency_s = pl.col("latency_ns") / NS_PER_S
    batch_flops = pl.col("flops") * pl.col("batch")
    per_s = pl.col("tokens_per_inference") / latency_s
    moved = pl.col("bytes_moved")
    shown = scope.cells.select(
        "model", "platform_key",
        (pl.col("latency_ns") / NS_PER_MS).alias(f"{name}_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias(f"{name}_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias(f"{name}_high_ms"),
        *([(pl.col("ttft_ns") / NS_PER_MS).alias("ttft_p50_ms")] if has_prompt else []),
        per_s.alias(_rate_column(workload)),
        (pl.col("energy_mj") / _MJ_PER_J / pl.col("tokens_per_inference")).alias("j_per_token"),
        (batch_flops / latency_s / (pl.col("peak_gflops") * 1e9)).alias("mfu"),
        (moved / latency_s / (pl.col("peak_gbps") * 1e9)).alias("mbu"),
        (batch_flops / moved).alias("flops_per_byte"),
        *((pl.col(source) / BYTES_PER_MIB).alias(shown) for shown, source in _MIB.items()),
        "n_repeats", "flags", pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    return Table(
        title=f"Tokens, {workload}",
        frame=_without_division_by_zero(shown),
        notes=(*scope.notes, MEANINGS[workload.kind]),
        explanation=(_RATE, _UTILISATION, _BYTES, _ENERGY),
    )


def workload_with_tokens(session: Session) -> Workload:
    """The workload of the session.

    Raises:
        NoDataError: it is `image`, or a step of training.
    """
    workload = session.workload
    if workload.kind is WorkloadKind.TRAIN:
        raise NoDataError(
            f"workload {workload} is a step of training, not an inference",
            "choose another workload, or `fleetrank report show training`",
        )
    if workload.kind is WorkloadKind.IMAGE:
        raise NoDataError(
            "the selected rows are of workload image, which has no tokens",
            "measure a language model, or choose a workload such as `workload=decode@128`",
        )
    return workload


def _rate_column(workload: Workload) -> str:
    """Named by its phase: prompts and steps have unlike rates."""
    kind = workload.kind
    phase = WorkloadKind.DECODE if kind is WorkloadKind.GENERATE else kind
    return f"{phase}_tokens_per_s"


def _without_division_by_zero(frame: pl.DataFrame) -> pl.DataFrame:
    """A figure over a latency, a peak or bytes of 0 is null."""
    floats = pl.selectors.float()
    return frame.with_columns(pl.when(floats.is_finite()).then(floats))
