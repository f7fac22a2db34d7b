"""What ExecuTorch's programs for language models log: `PyTorchObserver {...}`, one line a run.

Source: ExecuTorch, extension/llm/runner/stats.h: times are whole units of
`SCALING_FACTOR_UNITS_PER_SECOND` (milliseconds), and a decode rate is the generated tokens over
the time from the end of the prompt to the end of the run. The log names neither model nor device;
the user's mapping states both.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import Importer, read_table
from fleetrank.analysis.importers.release import (
    Equivalences,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    named,
    whole,
)
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.inputs.workload import LARGEST_LENGTH
from fleetrank.foundation.plain_data import parse_toml
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.visible_text import shortened

SOURCE = "executorch-llm"
_LINE = re.compile(r"PyTorchObserver[ \t]+(\{[^{}\n]{1,4000}\})")
_TICKS = (
    "inference_start_ms", "prompt_eval_end_ms", "first_token_ms", "inference_end_ms",
)  # fmt: skip
_COUNTS = ("prompt_tokens", "generated_tokens")
_SCALE = "SCALING_FACTOR_UNITS_PER_SECOND"
_LARGEST = 2**53
"""Whole numbers beyond this one are not exact in JSON."""
_MOST_THREADS = 10_000
_TEXTS = ("model", "card", "device", "device_model", "tier", "backend", "precision", "licence")
_NEEDED = ("model", "device", "tier", "precision", "licence")
_WORDS = {one.name: one.values for one in COLUMNS if one.name in {"tier", "precision"}}
_DERIVED = [
    "latency_p50_ns: (inference_end - prompt_eval_end) / generated_tokens, with sampling",
    "ttft_samples_ns: first_token - inference_start, with tokenising and sampling",
]
_NOTE = "Times are whole milliseconds, and include sampling; those of a prompt also tokenising."


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
        mapping: TOML with `model`, `device`, `tier`, `precision` and `licence`; `card`,
            `device_model`, `backend` and `threads` are optional.

    Raises:
        AnalysisError: no such line, or a mapping that lacks a fact or has an unknown key.
    """
    facts = _read_mapping(mapping)
    lines = _LINE.findall(content.decode("utf-8", errors="replace"))
    if not lines:
        raise AnalysisError(
            f"{name} has no line of PyTorchObserver",
            "keep the program's whole output, on Android with that of logcat",
        )
    rows = tuple(_rows(lines, facts, file_reference(name, content)))
    licence = str(facts["licence"])
    return (Release(source=SOURCE, version="1", licence=licence, rows=rows, notes=(_NOTE,)),)


def _rows(lines: list[str], facts: Mapping[str, object], reference: str) -> Iterator[Row]:
    model, card = str(facts["model"]), facts.get("card")
    table = Equivalences(
        source=SOURCE, equal={} if card is None else {model: str(card)}, unequal={}, macs={}
    )
    for line in lines:
        run, reason = _read_line(line)
        row = _platform(facts) | {"source_ref": reference, "derived": _DERIVED}
        row = named(row | ({} if run is None else _figures(run)), model, table)
        yield row | {"status": "ok"} if reason is None else drop(row, *reason)


def _platform(facts: Mapping[str, object]) -> Row:
    device = str(facts["device"])
    return {
        "device": device_names(SOURCE, [device], kept="._")[device],
        "device_model": facts.get("device_model", device),
        "tier": facts["tier"],
        "runtime": "executorch",
        "backend": facts.get("backend"),
        "mode": "eager",
        "precision": facts["precision"],
        "batch": 1,
        "threads": facts.get("threads"),
        "options": "{}",
        "source": SOURCE,
        "licence": facts["licence"],
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


def _read_mapping(content: bytes) -> Mapping[str, object]:
    try:
        given = parse_toml(content.decode("utf-8-sig"), "the mapping")
    except UnicodeDecodeError as error:
        raise AnalysisError(f"the mapping is not text: {error}", "save it in UTF-8") from error
    except BadFileError as error:
        raise AnalysisError(error.message, error.remedy) from error
    known = (*_TEXTS, "threads")
    for key, value in given.items():
        if key not in known:
            raise AnalysisError(
                f"the mapping has an unknown key '{shortened(key)}'",
                f"known are {', '.join(known)}",
            )
        is_threads = type(value) is int and 0 < value <= _MOST_THREADS
        if not (is_threads if key == "threads" else isinstance(value, str)):
            raise AnalysisError(
                f"{key} of the mapping is {shortened(repr(value))}",
                f"write {key} = 4" if key == "threads" else f'write {key} = "..."',
            )
    if lacking := [key for key in _NEEDED if not given.get(key)]:
        raise AnalysisError(f"the mapping lacks {', '.join(lacking)}", "write one line for each")
    for key, words in _WORDS.items():
        if given[key] not in (words or ()):
            raise AnalysisError(
                f"{key} = '{shortened(str(given[key]))}' is not an allowed word",
                f"use {', '.join(words or ())}",
            )
    return given


def _read_file(path: Path, mapping: bytes) -> tuple[Release, ...]:
    return parse_log(path.name, read_table(path), mapping)


IMPORTER = Importer(read=_read_file, needs_mapping=True)
