"""Parses the block of results that LiteRT 2's `benchmark_model` (CompiledModel) ends with.

Source: litert/tools/benchmark_litert_model.h of LiteRT 2.1, checked on published output.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.android.programs.benchmark_result import BenchmarkFigures, grown_bytes
from fleetrank.device_agents.android.programs.program_text import (
    NUMBER,
    not_a_result,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.vocabulary import Statistic

_INIT, _FIRST, _WARMUP, _MEAN = (
    "Model initialization", "Warmup (first)", "Warmup (avg)", "Inference (avg)",
)  # fmt: skip
_MIN, _MAX, _STD = "Inference (min)", "Inference (max)", "Inference (std)"
_INIT_MEMORY, _OVERALL_MEMORY = "Init footprint", "Overall footprint"
_LABELS = (_INIT, _FIRST, _WARMUP, _MEAN, _MIN, _MAX, _STD, _INIT_MEMORY, _OVERALL_MEMORY)
# The pattern includes the line end, because half a number also looks like a number.
_LINE = re.compile(
    rf"^(?:INFO: \[[^\]\n]*+\] )?({'|'.join(map(re.escape, _LABELS))}): ++({NUMBER})"
    r"(?: ms| MB)?(?: \(([0-9]{1,12}) runs\))?\r?\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitertBlock:
    """The block's figures as text, and the counts of runs, by label; not judged yet."""

    figures: Mapping[str, str]
    counts: Mapping[str, int]

    @property
    def count(self) -> int:
        """The number of timed runs; 0 if the block has none."""
        return self.counts.get(_MEAN, 0)

    @property
    def init_ns(self) -> int | None:
        """Time until the model was ready, in steps of 10 us."""
        return self._ns(_INIT)

    @property
    def memory_bytes(self) -> tuple[int | None, int | None]:
        """Growth until the model was ready and until the end, as in `BenchmarkFigures`."""
        return self._bytes(_INIT_MEMORY), self._bytes(_OVERALL_MEMORY)

    def to_figures(self) -> BenchmarkFigures:
        """All figures of the block alone: it has a mean and no median, in steps of 10 us.

        Raises:
            BadOutputError: no run was timed, or a figure is not plausible.
        """
        if self.count == 0:
            raise not_a_result("no run was timed")
        mean_ns = to_latency_ns(self.figures[_MEAN], NS_PER_MS, "the mean")
        first_ns, warmup_ns = self._ns(_FIRST), self._ns(_WARMUP)
        n_warmup = self.counts.get(_WARMUP, 0)
        has_warmup = n_warmup > 0 and None not in (first_ns, warmup_ns)
        init_memory, overall_memory = self.memory_bytes
        return BenchmarkFigures(
            summary=ToolSummary(
                count=self.count,
                latency_ns=mean_ns,
                statistic=Statistic.MEAN,
                mean_ns=mean_ns,
                std_ns=self._ns(_STD),
            ),
            min_ns=self._ns(_MIN),
            max_ns=self._ns(_MAX),
            init_ns=self.init_ns,
            first_inference_ns=first_ns,
            warmup_ns=max(0, (warmup_ns or 0) * n_warmup - (first_ns or 0)) if has_warmup else None,
            warmup_runs=n_warmup - 1 if has_warmup else None,
            init_memory_bytes=init_memory,
            overall_memory_bytes=overall_memory,
        )

    def _ns(self, label: str) -> int | None:
        text = self.figures.get(label)
        return None if text is None else to_ns(text, NS_PER_MS, label)

    def _bytes(self, label: str) -> int | None:
        text = self.figures.get(label)
        return None if text is None else grown_bytes(float(text) * BYTES_PER_MIB)


def find_litert_block(text: str) -> LitertBlock | None:
    """Finds the block of one run; `None` if the text has none, or only a part.

    Raises:
        BadOutputError: the text has the results of more than one run.
    """
    found = _LINE.findall(text)
    figures = {label: number for label, number, _ in found}
    if len(figures) < len(found):
        raise not_a_result("it has the results of more than one run")
    if not {_INIT, _MEAN} <= set(figures):
        return None
    return LitertBlock(
        figures=figures, counts={label: int(count) for label, _, count in found if count}
    )
