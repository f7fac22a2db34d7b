"""Table `tokens`: what a language model costs for each token."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S
from fleetrank.foundation.workload import Workload, WorkloadKind

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
    # Prompts and steps have unlike rates, so the phase is in the name.
    kind = workload.kind
    phase = WorkloadKind.DECODE if kind is WorkloadKind.GENERATE else kind
    # A figure over a latency, a peak or bytes of 0 is null.
    floats = pl.selectors.float()
    shown = scope.cells.select(
        "model", "platform_key",
        (pl.col("latency_ns") / NS_PER_MS).alias(f"{name}_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias(f"{name}_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias(f"{name}_high_ms"),
        *([(pl.col("ttft_ns") / NS_PER_MS).alias("ttft_p50_ms")] if has_prompt else []),
        per_s.alias(f"{phase}_tokens_per_s"),
        (pl.col("energy_mj") / _MJ_PER_J / pl.col("tokens_per_inference")).alias("j_per_token"),
        (batch_flops / latency_s / (pl.col("peak_gflops") * 1e9)).alias("mfu"),
        (moved / latency_s / (pl.col("peak_gbps") * 1e9)).alias("mbu"),
        (batch_flops / moved).alias("flops_per_byte"),
        *((pl.col(source) / BYTES_PER_MIB).alias(shown) for shown, source in _MIB.items()),
        "n_repeats", "flags", pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    return Table(
        title=f"Tokens, {workload}",
        frame=shown.with_columns(pl.when(floats.is_finite()).then(floats)),
        notes=(*scope.notes, MEANINGS[workload.kind]),
        explanation=explained("tokens/rates"),
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
            "choose another workload, or `fleetrank report show latency` with `part=training`",
        )
    if workload.kind is WorkloadKind.IMAGE:
        raise NoDataError(
            "the selected rows are of workload image, which has no tokens",
            "measure a language model, or choose a workload such as `workload=decode@128`",
        )
    return workload
