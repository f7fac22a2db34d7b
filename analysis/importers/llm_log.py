"""What ExecuTorch's programs for language models log: `PyTorchObserver {...}`, one line a run.

Source: ExecuTorch, extension/llm/runner/stats.h: times are whole units of
`SCALING_FACTOR_UNITS_PER_SECOND` (milliseconds), and a decode rate is the generated tokens over
the time from the end of the prompt to the end of the run. The log names neither model nor device;
the user's mapping states both.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import (
    Equivalences,
    Importer,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    named,
    read_table,
    whole,
)
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.foundation.errors import shortened
from fleetrank.foundation.files import decoded
from fleetrank.foundation.inputs import LARGEST_LENGTH
from fleetrank.foundation.plain_data import parse_toml
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Key, checked
from fleetrank.foundation.vocabulary import NS_PER_S

SOURCE = "executorch-llm"
_LINE = re.compile(r"PyTorchObserver[ \t]+(\{[^{}\n]{1,4000}\})")
_TICKS = (
    "inference_start_ms", "prompt_eval_end_ms", "first_token_ms", "inference_end_ms",
)  # fmt: skip
_COUNTS = ("prompt_tokens", "generated_tokens")
_SCALE = "SCALING_FACTOR_UNITS_PER_SECOND"
_LARGEST = 2**53
"""Whole numbers beyond this one are not exact in JSON."""
_WORDS = {one.name: one.values or () for one in COLUMNS if one.name in {"tier", "precision"}}
_Text = Annotated[str, Key(pattern=".")]
_DERIVED = [
    "latency_p50_ns: (inference_end - prompt_eval_end) / generated_tokens, with sampling",
    "ttft_samples_ns: first_token - inference_start, with tokenising and sampling",
]
_NOTE = "Times are whole milliseconds, and include sampling; those of a prompt also tokenising."


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The user's mapping: what a log does not say."""

    __pydantic_config__ = NO_OTHER_KEYS

    model: _Text
    device: _Text
    tier: Annotated[str, Key(words=_WORDS["tier"])]
    precision: Annotated[str, Key(words=_WORDS["precision"])]
    licence: _Text
    card: str | None = None
    device_model: str | None = None
    backend: str | None = None
    threads: Annotated[int | None, Key(ge=1, le=10_000)] = None


_FILE: TypeAdapter[LogFacts] = TypeAdapter(LogFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One line, in nanoseconds."""

    prompt: int
    generated: int
    prompt_ns: int
    steps_ns: int


def parse_log(name: str, content: bytes, mapping: bytes) -> tuple[Release, ...]:
    """Reads a log: each run of the program is a row of `generate@P+N`.

    Args:
        name: of the file.
        content: anything that holds lines of `PyTorchObserver`, such as a logcat.
        mapping: TOML with the keys of `LogFacts`.

    Raises:
        BadFileError: the mapping lacks a fact or has an unknown key.
        AnalysisError: no such line.
    """
    where = "the mapping"
    facts = checked(_FILE, parse_toml(decoded(mapping, where), where), where)
    lines = _LINE.findall(decoded(content, name, "replace"))
    if not lines:
        raise AnalysisError(
            f"{name} has no line of PyTorchObserver",
            "keep the program's whole output, on Android with that of logcat",
        )
    rows = tuple(_rows(lines, facts, file_reference(name, content)))
    return (Release(source=SOURCE, version="1", licence=facts.licence, rows=rows, notes=(_NOTE,)),)


def _rows(lines: list[str], facts: LogFacts, reference: str) -> Iterator[Row]:
    equal = {} if facts.card is None else {facts.model: facts.card}
    table = Equivalences(source=SOURCE, equal=equal, unequal={}, macs={})
    for line in lines:
        run, reason = _read_line(line)
        row = _platform(facts) | {"source_ref": reference, "derived": _DERIVED}
        row = named(row | ({} if run is None else _figures(run)), facts.model, table)
        yield row | {"status": "ok"} if reason is None else drop(row, *reason)


def _platform(facts: LogFacts) -> Row:
    stated = {name: value for name, value in asdict(facts).items() if name != "card"}
    return stated | {
        "device": device_names(SOURCE, [facts.device], kept="._")[facts.device],
        "device_model": facts.device_model or facts.device,
        "runtime": "executorch",
        "mode": "eager",
        "batch": 1,
        "options": "{}",
        "source": SOURCE,
        "sample_kind": "tool_summary",
        "statistic": "mean",
    }


def _figures(run: _Run) -> Row:
    """The size of the cache is not logged, so `context_tokens` is not stated."""
    latency_ns = run.steps_ns / run.generated
    return {
        "workload": f"generate@{run.prompt}+{run.generated}",
        "prompt_tokens": run.prompt,
        "generated_tokens": run.generated,
        "tokens_per_inference": 1,
        "latency_p50_ns": latency_ns,
        "latency_mean_ns": latency_ns,
        "sample_count": run.generated,
        "ttft_samples_ns": [run.prompt_ns],
    }


def _read_line(text: str) -> tuple[_Run | None, tuple[str, str] | None]:
    """The run, and why it cannot be used."""
    try:
        found = json.loads(text)
    except ValueError:
        return None, ("not JSON", shortened(text))
    values = [found.get(key) for key in (*_COUNTS, *_TICKS, _SCALE)]
    numbers = [one for one in values if type(one) is int and 0 <= one <= _LARGEST]
    if len(numbers) < len(values):
        return None, ("a field is missing or no count", shortened(text))
    prompt, generated, start, prompt_end, first, end, scale = numbers
    if not (0 < prompt <= LARGEST_LENGTH and 0 < generated <= LARGEST_LENGTH and scale):
        return None, ("no prompt or no generated token", shortened(text))
    if not start <= prompt_end < end or not start < first <= end:
        return None, ("times out of order", shortened(text))
    prompt_ns, steps_ns = (
        whole(ticks, NS_PER_S / scale) for ticks in (first - start, end - prompt_end)
    )
    if not prompt_ns or not steps_ns:
        return None, ("out of range", shortened(text))
    return _Run(prompt=prompt, generated=generated, prompt_ns=prompt_ns, steps_ns=steps_ns), None


IMPORTER = Importer(
    read=lambda path, mapping: parse_log(path.name, read_table(path), mapping), needs_mapping=True
)
