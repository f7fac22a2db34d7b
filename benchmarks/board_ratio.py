"""Does ssh change what is measured? `python benchmarks/board_ratio.py ARTIFACT.onnx [PAIRS]`.

Measures one ONNX file on this machine in pairs: once by the CPU's agent, once by the board's agent
over a real sshd of this machine, in random order. Prints the ratio of the medians of each pair, and
its geometric mean with a 95 % interval over pairs (t on logarithms). Wanted: 0.98 to 1.02.

Peak memory has no such interval: the heap's layout is random, and the peak of one model takes one
of a few values that differ by up to a third, on either side. Printed are the values of both sides,
and the Mann-Whitney p of the question whether they come from one distribution.

Needs openssh-server.
"""

import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "makers"))

from ssh_board import ssh_board

from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Runtime

POLICY = MeasurePolicy(max_time_s=2.0, max_warmup_s=2.0, energy_s=0.0)


def main() -> None:
    """Measures and prints the pairs."""
    path, n_pairs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 20
    # A login has its own environment: without compiled modules the heap of the worker differs.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A path of a socket is short, and the folder of a session may be long.
    with tempfile.TemporaryDirectory(prefix="run-") as runtime, ssh_board() as board:
        environ["XDG_RUNTIME_DIR"] = runtime
        agents: dict[str, Agent] = {
            "local": CpuAgent({}),
            "ssh": BoardAgent({**board.options, "python": sys.executable, "max_temp_c": 150.0}),
        }
        pairs = [_pair(agents, path, number) for number in range(n_pairs)]
    _print("latency", [p["ssh"][0] / p["local"][0] for p in pairs])
    _print_memory({name: [p[name][1] for p in pairs] for name in ("local", "ssh")})


def _pair(agents: dict[str, Agent], path: Path, number: int) -> dict[str, tuple[float, float]]:
    names = list(agents)
    random.Random(number).shuffle(names)
    found = {name: _figures(agents[name].measure(_task(path, number))) for name in names}
    ratio = found["ssh"][0] / found["local"][0]
    print(f"pair {number + 1}: {names[0]} first, ssh / local {ratio:.4f}", flush=True)
    return found


def _task(path: Path, number: int) -> MeasureTask:
    return MeasureTask(
        task_id=f"pair/{number}",
        artifact_path=str(path),
        artifact_sha256=file_sha256(path),
        execution=Execution(runtime=Runtime.ONNX, backend="cpu", affinity=(0,)),
        is_trusted=True,
        primer_path=str(path),
        seed=number,
        policy=POLICY,
    )


def _figures(seen: Measurement) -> tuple[float, float]:
    if seen.failure is not None:
        raise SystemExit(f"{seen.failure.message}\n  -> {seen.failure.remedy}")
    return statistics.median(seen.samples_ns), float(seen.run_peak_memory_bytes or 0)


def _print_memory(found: Mapping[str, Sequence[float]]) -> None:
    for name, values in found.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"run peak memory, {name}: {middle:,.0f} bytes ({low:,.0f} to {high:,.0f})")
    p_value = float(stats.mannwhitneyu(found["local"], found["ssh"]).pvalue)
    print(f"run peak memory: Mann-Whitney p = {p_value:.3f}")


def _print(what: str, ratios: Sequence[float]) -> None:
    logs = [math.log(ratio) for ratio in ratios]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    reach = error * float(stats.t.ppf(0.975, len(logs) - 1))
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    print(
        f"{what}: ssh / local {math.exp(mean):.4f} [{low:.4f}, {high:.4f}] over {len(logs)} pairs"
    )


if __name__ == "__main__":
    main()
