"""The campaign of `make fuzz`: every target, many inputs, a table of counts at the end.

Each process takes one target after the other. Before an input is judged it is written down, so that
one that ends its process, or never comes back, is known and kept like any other.
"""

import argparse
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import adb_targets
import artifact_targets
import device_text_targets
import file_targets
import import_targets
import screen_targets
import store_targets
from counts import Count, report, save
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisWarning
from target import Crash, Target, judge, limit_memory, warm_up

MODULES = (
    file_targets, store_targets, import_targets, artifact_targets, adb_targets,
    device_text_targets, screen_targets,
)  # fmt: skip
TARGETS: Mapping[str, Target] = {
    target.name: target for module in MODULES for target in module.TARGETS
}
MAX_CRASHES = 8
"""Of one target: more places than this are one defect, or a target that is wrong itself."""
MAX_SLOW = 20
"""Inputs of one target that take too long: each costs as much as a thousand others."""
BATCH = 500
"""Inputs that hypothesis makes in one run: it remembers them all."""
SILENT_S = 120.0
"""A process that has judged nothing for so long hangs in native code."""


class _New(Exception):  # noqa: N818 - carries a crash through hypothesis
    """A crash in a place that is not known yet; without the error, whose text may be endless."""


def main() -> int:
    """Runs the campaign and returns its exit code."""
    options = _options()
    names = [name for name in TARGETS if not options.only or name in options.only]
    started_s = time.monotonic()
    counts = run_campaign(names, options.inputs, options.jobs, options.seed)
    took_s = time.monotonic() - started_s
    print(report(counts))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    print(
        f"{took_s:.0f} s with {options.jobs} processes, {cpu_s:.0f} s of CPU; seed {options.seed}"
    )
    return 1 if any(count.crashes for count in counts) else 0


def run_campaign(names: Sequence[str], inputs: int, jobs: int, first_seed: int) -> list[Count]:
    """Spreads the inputs over the targets, the targets over processes, and waits for all."""
    shares = sum(TARGETS[name].share for name in names)
    waiting = [(name, max(1, round(inputs * TARGETS[name].share / shares))) for name in names]
    running: list[_Job] = []
    done: list[Count] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            name, most = waiting.pop()
            running.append(_Job(name, most, first_seed))
        time.sleep(0.02)
        for job in [job for job in running if job.is_over()]:
            running.remove(job)
            done.append(job.count())
    return sorted(done, key=lambda count: list(TARGETS).index(count.target))


def fuzz(target: Target, inputs: int, first_seed: int, note: Path) -> Count:
    """Gives a target so many inputs; each new place of a crash is made small and saved."""
    count = Count(target=target.name)
    warm_up(target)
    for number in range(inputs):
        before = count.inputs
        _one_run(target, min(BATCH, inputs - before), first_seed + number, count, note)
        is_given_up = len(count.crashes) >= MAX_CRASHES or count.slow >= MAX_SLOW
        # A strategy that has nothing more to give ends a run without an input.
        if is_given_up or count.inputs == before or count.inputs >= inputs:
            break
    return count


class _Job:
    """One target in a process, and what it has noted last."""

    def __init__(self, name: str, inputs: int, first_seed: int) -> None:
        self._name = name
        descriptor, note = tempfile.mkstemp(prefix=f"fleetrank-fuzz-{name}-")
        os.close(descriptor)
        self._note = Path(note)
        self._answer, theirs = multiprocessing.Pipe(duplex=False)
        # Forked: what the targets import is loaded once.
        self._process = multiprocessing.get_context("fork").Process(
            target=_child, args=(name, inputs, first_seed, self._note, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self._seen_ns, self._seen_s = 0, time.monotonic()

    def is_over(self) -> bool:
        noted_ns = self._note.stat().st_mtime_ns
        if noted_ns != self._seen_ns:
            self._seen_ns, self._seen_s = noted_ns, time.monotonic()
        elif time.monotonic() - self._seen_s > SILENT_S:
            self._process.kill()
        return self._answer.poll() or not self._process.is_alive()

    def count(self) -> Count:
        try:
            count: Count = self._answer.recv()
        except EOFError:
            count = self._killed()
        self._process.join()
        self._note.unlink()
        return count

    def _killed(self) -> Count:
        """The process ended in the middle of an input."""
        self._process.join()
        place = f"the process ended with {self._process.exitcode}"
        saved = save(self._name, self._note.read_bytes())
        return Count(target=self._name, inputs=1, crashes={place: str(saved)})


def _child(name: str, inputs: int, first_seed: int, note: Path, answer: Connection) -> None:
    limit_memory()
    warnings.simplefilter("ignore", HypothesisWarning)  # of large inputs
    logging.disable(logging.CRITICAL)
    answer.send(fuzz(TARGETS[name], inputs, first_seed, note))


def _one_run(target: Target, inputs: int, number: int, count: Count, note: Path) -> None:
    """One run of hypothesis, up to the first crash in a new place, which it makes small."""
    smallest: tuple[bytes, Crash] | None = None
    descriptor = os.open(note, os.O_WRONLY)

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def one(data: bytes) -> None:
        nonlocal smallest
        os.ftruncate(descriptor, os.pwrite(descriptor, data, 0))
        count.inputs += 1
        try:
            count.add(judge(target, data))
        except Crash as crash:
            count.slow += crash.is_slow
            if crash.place in count.crashes:
                return
            if crash.is_slow:
                # Not made smaller: each try would take as long.
                count.keep(crash, data)
                return
            if smallest is not None and smallest[1].place != crash.place:
                return  # one at a time is made small; a later run finds this one
            if smallest is None or (len(data), data) < (len(smallest[0]), smallest[0]):
                smallest = (data, crash)
            raise _New(crash.place) from None

    try:
        one()
    except _New:
        pass
    except Exception as error:  # hypothesis: an input that crashes at times only
        count.crashes[f"{type(error).__name__} of the harness"] = ascii(str(error)[:300])
    finally:
        os.close(descriptor)
    if smallest is not None:
        count.keep(smallest[1], smallest[0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Give every reader of fleetrank hostile inputs.")
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="the same inputs again")
    parser.add_argument("--only", nargs="*", choices=list(TARGETS), help="these targets")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    return options


if __name__ == "__main__":
    sys.exit(main())
