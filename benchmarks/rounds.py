"""How much less do ratios vary if models take turns? `python benchmarks/rounds.py measure FILE`.

Measures models of this workspace's cache in fresh processes, in two designs in turn: the models of
a group take turns (a round), then the same group one after the other. Every repeat deals the models
of a runtime to new groups. `measure` appends one line for each process to FILE until `--minutes`
are over, so it can be continued; `report` prints what FILE shows:

- the standard deviation of the log ratio of two models, by design, from the rests of log latency =
  model + group (two-way least squares), with the interval of the quotient of both designs;
- the same without groups: models that were measured at any time, one after the other;
- the agreement of ranks of two halves of the repeats;
- how much longer or shorter the latencies of rounds are, with the interval over models;
- seconds of a design.

`--same` measures one file under two names: rounds of equal models. Run `make sweep` first; it fills
the cache. A quiet machine is needed for the bias, not for the comparison of the designs.
"""

import argparse
import os
import random
import statistics
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from round_figures import print_designs, print_same

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import BlockPolicy, Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.linux.round_client import measure_round
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Format, Runtime, Status

THREE = ("mobilenet_v2", "efficientnet_b0", "resnet18")
POLICY = MeasurePolicy(max_time_s=2.0, energy_s=0.0, max_warmup_s=1.0, half_width=1e-9)
"""Timed for as long as 5 blocks of 0.4 s, so that both designs have the same time of samples."""
BLOCKS = BlockPolicy(max_blocks=5)
_BACKENDS = {Runtime.TFLITE: "xnnpack"}


def main() -> None:
    """Measures, or prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("measure", "report"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--cells", type=int, default=3, help="models of a group")
    parser.add_argument("--models", nargs="*", help="default: all of the cache")
    parser.add_argument("--same", action="store_true", help="one file under two names")
    parser.add_argument("--cache", type=Path, default=Path("artifacts"))
    given = parser.parse_args()
    if given.action == "measure":
        _measure(given)
    rows = [orjson.loads(line) for line in given.file.read_bytes().splitlines()]
    (print_same if given.same else print_designs)(rows)


def _measure(given: argparse.Namespace) -> None:
    end = time.monotonic() + 60 * given.minutes
    tasks = tasks_of(given.cache, given.models)
    if given.same:
        tasks = [task for task in tasks if task.task_id == f"onnx/{THREE[0]}"]
        tasks = [replace(tasks[0], task_id=f"{tasks[0].task_id}#{n}") for n in (1, 2)]
    done = given.file.read_bytes().count(b"\n") if given.file.exists() else 0
    repeat = done // (len(tasks) * (1 if given.same else 2))
    with given.file.open("ab") as file:
        while time.monotonic() < end:
            for number, group in enumerate(groups(tasks, given.cells, repeat)):
                for line in _both(group, f"{repeat}/{number}", only_rounds=given.same):
                    file.write(orjson.dumps(line | {"repeat": repeat}) + b"\n")
            file.flush()
            repeat += 1


def groups(tasks: Sequence[MeasureTask], size: int, repeat: int) -> Iterator[list[MeasureTask]]:
    """Deals the models of each runtime to groups of nearly equal size, in random order."""
    chance = random.Random(repeat)
    found = []
    for runtime in sorted({task.execution.runtime for task in tasks}):
        mine = [task for task in tasks if task.execution.runtime == runtime]
        chance.shuffle(mine)
        n_groups = -(-len(mine) // size)
        found += [mine[number::n_groups] for number in range(n_groups)]
    chance.shuffle(found)
    yield from found


def _both(
    group: Sequence[MeasureTask], name: str, *, only_rounds: bool
) -> Iterator[dict[str, object]]:
    """The processes of one group in both designs; every second group begins with the other one."""
    seeded = [replace(task, seed=zlib.crc32(name.encode())) for task in group]
    alone = [replace(task, blocks=None) for task in seeded]
    designs = [
        ("rounds", lambda: measure_round(seeded)),
        ("isolated", lambda: [measure_in_worker(task) for task in alone]),
    ]
    chosen = designs[:1] if only_rounds else designs
    if int(name.split("/")[1]) % 2:
        chosen = chosen[::-1]
    for design, measure in chosen:
        begin = time.perf_counter()
        answers = measure()
        seconds = (time.perf_counter() - begin) / len(group)
        for one in answers:
            medians = block_medians(one)
            yield {
                "design": design, "group": name, "cell": one.task_id, "seconds": seconds,
                "median_ns": statistics.median(one.samples_ns), "block_medians_ns": medians,
            }  # fmt: skip


def block_medians(one: Measurement) -> list[float]:
    """Median of each block in ns; empty without blocks."""
    if one.status is not Status.OK:
        sys.exit(f"{one.task_id}: {one.failure}")
    first, medians = 0, []
    for block in one.blocks:
        medians.append(statistics.median(one.samples_ns[first : first + block.samples]))
        first += block.samples
    return medians


def tasks_of(cache: Path, models: Sequence[str] | None = THREE) -> list[MeasureTask]:
    """Tasks of models (`None`: all) in every runtime of which the cache has all of them.

    `task_id` is RUNTIME/MODEL. The files are those of images in fp32 and batch 1.
    """
    files: dict[tuple[Runtime, str], dict[str, str]] = {}
    for path in sorted(cache.glob("index/*.json")):
        entry = orjson.loads(path.read_bytes())
        card = entry["request"].get("model", entry["request"]).get("card", {})
        if card.get("name", "primer") != "primer" and card.get("language") is None:
            runtime = RUNTIME_OF_FORMAT[Format(entry["artifact"]["format"])]
            files[runtime, card["name"]] = entry["artifact"]
    wanted = sorted(set(models or ()) or {model for _, model in files})
    runtimes = [one for one in Runtime if all((one, model) in files for model in wanted)]
    if not runtimes or not wanted:
        sys.exit(f"the cache has not all of {', '.join(wanted) or 'the models'}: `make sweep`")
    return [
        MeasureTask(
            task_id=f"{runtime}/{model}",
            artifact_path=str((cache / "files" / files[runtime, model]["file"]).resolve()),
            artifact_sha256=files[runtime, model]["sha256"],
            execution=Execution(
                runtime=runtime,
                backend=_BACKENDS.get(runtime, "cpu"),
                affinity=(min(os.sched_getaffinity(0)),),
            ),
            is_trusted=True,
            policy=POLICY,
            blocks=BLOCKS,
        )
        for runtime in runtimes
        for model in wanted
    ]


if __name__ == "__main__":
    main()
