"""Made-up perplexities over lengths of a text, beside the measured cells of the same model."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from language_rows import DECODERS, MACHINES, write_language_results

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.orchestrator.store.side import append_side

LENGTHS = (512, 1024, 2048, 4096)
MODEL = "smollm_135m"
_WHEN = datetime(2026, 1, 2, tzinfo=UTC)


def write_contexts(results: Path, *, is_measured: bool = True) -> Path:
    """Vanilla up to 2,048 tokens, windows of 512, and segments of 512 with a memory."""
    if is_measured:
        write_language_results(
            results,
            decoders=[one for one in DECODERS if one.name == MODEL],
            machines=MACHINES[:1],
            workloads=[*(f"prefill@{length}" for length in LENGTHS[:3]), "segment@512+k32+n300"],
        )
    ways = (
        *(("vanilla", length, length, length, 20 - length / 1000) for length in LENGTHS[:3]),
        *(("window", 512, 256, length, 19.8 - length / 4000) for length in LENGTHS),
        *(("hmt+k32+n300", 512, 512, length, 19.9 - length / 1500) for length in LENGTHS),
    )
    rows: list[dict[str, object]] = [
        {
            "evaluation_id": f"e-{number}", "model": MODEL, "family": "llama",
            "weights": "trained.pt", "task": "ppl", "data": f"book-{text}.txt",
            "data_sha256": f"{text:064d}", "strategy": strategy, "window_tokens": window,
            "stride_tokens": stride, "quality_metric": "perplexity", "quality": quality,
            "quality_low": quality - 0.4, "quality_high": quality + 0.4, "n_documents": 10,
            "n_tokens": 10 * text, "runtime": "onnx", "device": "xeon", "precision": "fp32",
            "flags": [], "finished_utc": _WHEN + timedelta(days=number),
        }
        for number, (strategy, window, stride, text, quality) in enumerate(ways)
    ]  # fmt: skip
    append_side(results, EVALUATIONS, rows)
    return results
