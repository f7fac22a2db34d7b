"""What became of the inputs, and the table that says it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from target import Answer, Crash

FOUND = Path(__file__).with_name("found")
"""Recorded cases: one file an input, in a folder named like its target."""
_HEADS = ("target", "inputs", "outcomes", "refused", "crashes", "slowest ms")


@dataclass(kw_only=True)
class Count:
    """Of one target; `crashes` is place to what happened there and the file that shows it."""

    target: str
    inputs: int = 0
    refused: int = 0
    slow: int = 0
    slowest_ms: float = 0.0
    outcomes: set[str] = field(default_factory=set)
    crashes: dict[str, str] = field(default_factory=dict)

    def add(self, answer: Answer) -> None:
        """Counts an input that was read or refused."""
        self.outcomes.add(answer.text)
        self.refused += answer.is_refusal
        self.slowest_ms = max(self.slowest_ms, answer.cpu_s * 1000)

    def keep(self, crash: Crash, data: bytes) -> None:
        """Saves the input of a crash in a place that is not known yet."""
        if crash.place not in self.crashes:
            self.crashes[crash.place] = f"{crash.text} {save(self.target, data)}"


def save(target: str, data: bytes) -> Path:
    """Keeps an input that crashed a target; the ordinary tests try it from then on."""
    path = FOUND / target / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def report(counts: Sequence[Count]) -> str:
    """The table, and below it each crash with what was said."""
    rows = [
        (
            one.target, one.inputs, len(one.outcomes), one.refused, len(one.crashes),
            round(one.slowest_ms),
        )
        for one in counts
    ]  # fmt: skip
    sums = [sum(int(row[at]) for row in rows) for at in range(1, 5)]
    rows.append(("all", *sums, max((int(row[5]) for row in rows), default=0)))
    lines = [
        f"{name:<18}" + "".join(f"{value!s:>12}" for value in rest)
        for name, *rest in (_HEADS, *rows)
    ]
    crashes = [
        f"CRASH {one.target}: {place}\n      {text}"
        for one in counts
        for place, text in one.crashes.items()
    ]
    return "\n".join([*lines, *crashes])
