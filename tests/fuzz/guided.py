"""The same targets, led by the coverage of the code: needs atheris, which is no dependency.

atheris changes the modules that it watches while they are imported, so each target has a process.
"""

import argparse
import importlib.util
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from counts import Count, report
from hypothesis import HealthCheck, given, settings
from target import OWN, Crash, judge, limit_memory, warm_up

INPUTS = 1000
"""Of each target: some are refused before they become an input."""
TIMEOUT_S = 300.0
"""A process that is not over by then hangs; its target has no row in the table."""


def main() -> int:
    """Runs each target once and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of each target")
    parser.add_argument("--only", nargs="*", help="these targets")
    parser.add_argument("--answer", type=Path, help="run one target here, and write its counts")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("Inputs led by coverage: left out, atheris is not installed (pip install atheris).")
        return 0
    if options.answer is not None:
        _run(options.only[0], options.inputs, options.answer)
    from campaign import TARGETS

    counts = [_in_process(name, options.inputs) for name in options.only or TARGETS]
    print(report(counts))
    return 1 if any(count.crashes for count in counts) else 0


def _in_process(name: str, inputs: int) -> Count:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--only", name, "--inputs", str(inputs)]
        try:
            done = subprocess.run(
                [*command, "--answer", str(answer)],
                check=False,
                capture_output=True,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Count(target=name, crashes={"no end": f"after {TIMEOUT_S:g} s"})
        if not answer.exists():
            last = ascii(done.stderr[-300:])
            return Count(target=name, crashes={f"the process ended with {done.returncode}": last})
        fields = json.loads(answer.read_text())
    return Count(**fields | {"outcomes": set(fields["outcomes"])})


def _run(name: str, inputs: int, answer: Path) -> None:
    """Never comes back: the library ends the process after so many inputs."""
    import atheris

    with atheris.instrument_imports(include=list(OWN)):
        from campaign import TARGETS
    limit_memory()
    logging.disable(logging.CRITICAL)
    target, count = TARGETS[name], Count(target=name)
    warm_up(target)

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def one(data: bytes) -> None:
        count.inputs += 1
        try:
            count.add(judge(target, data))
        except Crash as crash:
            count.keep(crash, data)

    tried = 0

    def try_one(choices: bytes) -> None:
        nonlocal tried
        tried += 1
        one.hypothesis.fuzz_one_input(choices)
        if tried == inputs:
            answer.write_text(json.dumps(vars(count) | {"outcomes": sorted(count.outcomes)}))

    # One more than are counted: the last is the one that ends the process.
    options = [f"-atheris_runs={inputs + 1}", "-max_len=4096", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
