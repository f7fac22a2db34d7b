"""Is the order of two models that `faster` shows right, on a host that is shared and busy?

Three parts; the second reads what the first wrote, and needs nothing of this tool but its analysis,
so that another version of the code can read the same rows:

- `measure WORKSPACE`: 30 measurements of six models, all or some of them, by `run` and `ab`, one
  every few minutes beside nothing, one or two busy loops, or two of low priority. Copies the store
  after each; before and after, while nothing else runs, a sweep in rounds is the truth.
- `ask WORKSPACE`: the order of each pair after each measurement. Wrong is an interval beyond 1 on
  the side opposite to the truth, where the truth is known to its own interval.
- `simulate`: the same with made-up rows: the host's speed drifts from session to session and from
  process to process, and each session moves each model by some per cent of its own.

`python benchmarks/busy_host.py ask WORKSPACE`; a minute.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.columns import READ_SCHEMA
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

MODELS = (
    "mobilenet_v2", "mnasnet1_0", "squeezenet1_1", "mobilenet_v3_large", "levit_128s",
    "mobilevit_xxs",
)  # fmt: skip
LOADS = {"idle": (0, 0), "one loop": (1, 0), "two loops": (2, 0), "two niced": (2, 15)}
"""Number of busy loops and their niceness."""
STEPS = 30
TRUTH = {
    "name": "truth", "models": [*MODELS], "runtimes": ["onnx"], "devices": ["local-cpu"],
    "threads": [1], "repeats": 12, "measure": {"max_time_s": 3},
    "rounds": {"block_s": 0.2, "min_blocks": 3, "max_blocks": 5},
}  # fmt: skip


@contextmanager
def busy(load: str) -> Iterator[None]:
    """Busy loops beside what happens inside."""
    n, niceness = LOADS[load]
    loop = ["nice", "-n", str(niceness), sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(loop) for _ in range(n)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def commands(rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Load and arguments of each measurement."""
    for step in range(STEPS):
        load = [*LOADS][step % 4] if step % 8 < 4 else rng.choice([*LOADS])
        if step % 6 == 3:
            yield load, ["ab", *rng.sample(MODELS, 2), "--rounds", "5"]
            continue
        some = MODELS if step % 6 == 0 else rng.sample(MODELS, rng.choice([1, 1, 2, 3]))
        yield load, ["run", *some, "--repeats", "5" if step % 3 else "3"]


def measure(workspace: Path, gap_s: float) -> None:
    """The measurements, one every `gap_s` seconds."""
    program = Path(sys.executable).with_name("fleetrank")
    quiet = ["--runtime", "onnx", "--max-time", "1", "--progress", "none"]
    call = [str(program), "--workspace", str(workspace)]
    subprocess.run([*call, "init"], check=True)
    truth = workspace / "truth.yaml"
    truth.write_text(json.dumps(TRUTH))

    def tell_truth(name: str) -> None:
        subprocess.run([*call, "sweep", "run", str(truth), "--progress", "none"], check=True)
        shutil.move(workspace / "results", workspace / name)

    tell_truth("truth_before")
    began = time.perf_counter()
    for step, (load, words) in enumerate(commands(random.Random(7))):
        time.sleep(max(0.0, began + step * gap_s - time.perf_counter()))
        print(step, load, *words, f"load {os.getloadavg()[0]:.1f}", flush=True)
        with busy(load):
            subprocess.run([*call, *words, *quiet], check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(workspace / "results", workspace / "after" / f"{step:02}")
    shutil.move(workspace / "results", workspace / "after" / "all")
    tell_truth("truth_after")


def true_ratios(workspace: Path) -> Mapping[tuple[str, str], float]:
    """Log ratios of the pairs whose order both quiet sweeps show, and agree upon."""
    found: dict[tuple[str, str], list[float]] = {}
    for name in ("truth_before", "truth_after"):
        if not (workspace / name).exists():
            continue
        session = Session(load_measurements(workspace / name), Selection())
        for pair in combinations(MODELS, 2):
            here = faster(session, *pair).here
            is_first = here.model_a == pair[0]
            shown = here.low is not None and here.low > 1 and here.ratio is not None
            found.setdefault(pair, []).append(
                np.log(here.ratio or 1.0) * (1 if is_first else -1) if shown else 0.0
            )
    return {
        pair: float(np.mean(one))
        for pair, one in found.items()
        if abs(sum(np.sign(one))) == len(one)
    }


def ask(workspace: Path) -> None:
    """Counts right, wrong and undecided orders over all pairs and measurements."""
    truth = true_ratios(workspace)
    counts: Counter[str] = Counter()
    stays: Counter[str] = Counter()
    last: dict[tuple[str, str], str] = {}
    for folder in sorted((workspace / "after").glob("[0-9]*")):
        session = Session(load_measurements(folder), Selection())
        for pair, log in truth.items():
            said = _order(session, pair, log)
            counts[said] += 1
            if said in ("right", "wrong"):
                stays["changed" if last.get(pair, said) != said else "stayed"] += 1
                last[pair] = said
            if said == "wrong":
                print(folder.name, *pair, f"truth {np.exp(log):.3f}", _shown(session, pair))
    total = counts.total()
    print(f"{len(truth)} pairs with a known order, {total} questions:")
    print(", ".join(f"{name} {n} ({100 * n / total:.1f} %)" for name, n in counts.most_common()))
    print(f"decided orders that are the opposite of the one before: {stays['changed']}")


def _order(session: Session, pair: tuple[str, str], log: float) -> str:
    try:
        here = faster(session, *pair).here
    except (AnalysisError, NoDataError):
        return "not compared"
    if here.low is None or here.low <= 1:
        return "undecided"
    return "right" if (here.model_a == pair[0]) == (log > 0) else "wrong"


def _shown(session: Session, pair: tuple[str, str]) -> str:
    here = faster(session, *pair).here
    return f"said {here.model_a} by {here.ratio:.3f} ({here.low:.3f} to {here.high:.3f})"


GAPS = (0.0, 0.02, 0.05, 0.1, 0.3)
"""Log ratios between neighbours in the order of six models, drawn anew for each made-up host."""
NOISE, OWN, WEATHER = 0.03, 0.02, 0.1
"""Spread of logs: of processes, of what a session does to one model alone, and of the host's speed,
which drifts with a memory of `MEMORY` processes."""
MEMORY = 30
BUSY = 0.25
"""Share of sessions in a busy minute, 1.3 to 4 times as long, whose processes vary by 30 %."""


def made_up_host(seed: int) -> tuple[dict[tuple[str, str], float], list[pl.DataFrame]]:
    """True log ratios of six models, and the rows of each measurement."""
    rng = np.random.default_rng(seed)
    levels = dict(zip(MODELS, np.cumsum(rng.choice(GAPS, len(MODELS))).tolist(), strict=True))
    weather, parts = 0.0, []
    for step, (_, (kind, *words)) in enumerate(commands(random.Random(seed))):
        models = [one for one in words if one in levels]
        n, is_busy = int(words[-1]), rng.random() < BUSY
        factor, noise = (np.log(rng.uniform(1.3, 4)), 0.3) if is_busy else (0.0, NOISE)
        session = {model: levels[model] + rng.normal(0, OWN) + factor for model in models}
        rows = []
        for repeat in range(n):
            for model in rng.permutation(models).tolist():
                if kind == "run" or model == models[0]:
                    weather *= 1 - 1 / MEMORY
                    weather += rng.normal(0, WEATHER * (2 / MEMORY) ** 0.5)
                log = session[model] + weather + rng.normal(0, noise)
                rows.append(_row(step, kind, model, repeat, 1e6 * np.exp(log)))
        parts.append(pl.DataFrame(rows, schema=READ_SCHEMA))
    ratios = {(a, b): levels[b] - levels[a] for a, b in combinations(MODELS, 2)}
    return ratios, parts


def _row(step: int, kind: str, model: str, repeat: int, latency_ns: float) -> dict[str, object]:
    is_round = kind == "ab"
    facts: dict[str, object] = {
        "sweep_id": f"{kind}-{step:02}", "model": model, "repeat": repeat,
        "latency_p50_ns": latency_ns, "design": "rounds" if is_round else "isolated",
        "round_id": f"r{repeat}" if is_round else None,
        "started_utc": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=4 * step),
        "device": "d", "device_model": "d", "tier": "cpu", "origin": "measured", "status": "ok",
        "runtime": "onnx", "backend": "cpu", "mode": "eager", "precision": "fp32", "batch": 1,
        "threads": 1, "options": "{}", "attempt": 0, "seed": 7, "sample_kind": "per_inference",
        "memory_metric": "vmhwm_growth", "runtime_version": "1.0", "family": "mobile_cnn",
        "card_sha256": "c", "weights_id": "w", "input_size": 224, "flags": [],
        "sample_count": 100, "platform_key": "d/onnx/b1/t1", "cell_key": f"{model} on d",
    }  # fmt: skip
    return dict.fromkeys(READ_SCHEMA) | facts


def simulate(hosts: int) -> None:
    """Counts orders of pairs that differ, and claims about pairs that do not."""
    counts = {"differ": Counter[str](), "equal": Counter[str]()}
    for seed in range(hosts):
        ratios, parts = made_up_host(seed)
        for step in range(0, STEPS, 3):
            session = Session(pl.concat(parts[: step + 1]).lazy(), Selection())
            for pair, log in ratios.items():
                counts["differ" if log else "equal"][_order(session, pair, log)] += 1
    for kind, found in counts.items():
        total = found.total()
        shares = (f"{name} {100 * n / total:.1f} %" for name, n in found.most_common())
        print(f"pairs that {kind}: {total} questions: {', '.join(shares)}")


def main() -> None:
    """Runs the part that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["measure", "ask", "simulate"])
    parser.add_argument("workspace", type=Path, nargs="?", default=Path())
    parser.add_argument("--gap", type=float, default=215.0, help="seconds between measurements")
    parser.add_argument("--hosts", type=int, default=40, help="made-up hosts")
    chosen = parser.parse_args()
    if chosen.part == "measure":
        measure(chosen.workspace, chosen.gap)
    elif chosen.part == "ask":
        ask(chosen.workspace)
    else:
        simulate(chosen.hosts)


if __name__ == "__main__":
    main()
