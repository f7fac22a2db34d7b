"""Times a TFLite file by its runtime's library alone, for `devices check --proof`.

Its text is run by a plain Python here or on a board, so it imports nothing of ours. The last
argument is an object in JSON with the arguments of `main`; the last line of the output is the list
of times.
"""

import glob
import json
import os
import sys
import time
from collections.abc import Callable

Limits = tuple[float, float, float]


def main(
    pattern: str, threads: int, cpus: list[int] | None, warmup: Limits, timed: Limits, kept: str
) -> list[int]:
    """Loads the file, warms up and times single inferences.

    Args:
        pattern: its path; on a board with wildcards.
        threads: of the runtime.
        cpus: to pin it to; `None` lets the system choose.
        warmup: as the limits of `times_ns`, and
        timed: the same.
        kept: where to write `input_N` and `output_N` of the last run as `.npz`; empty keeps none.

    Returns:
        The time of each inference, in nanoseconds.
    """
    if cpus is not None:
        os.sched_setaffinity(0, cpus)  # before the library makes its threads
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    path = sorted(glob.glob(pattern))[-1]  # noqa: PTH207 - it can be absolute
    model = Interpreter(model_path=path, num_threads=threads)
    model.allocate_tensors()
    rng = np.random.default_rng(0)
    taken = model.get_input_details()
    inputs = [rng.standard_normal(one["shape"]).astype(one["dtype"]) for one in taken]
    for one, array in zip(taken, inputs, strict=True):
        model.set_tensor(one["index"], array)
    times_ns(model.invoke, *warmup)
    samples = times_ns(model.invoke, *timed)
    if kept:
        made = [model.get_tensor(one["index"]) for one in model.get_output_details()]
        groups = (("input", inputs), ("output", made))
        np.savez(kept, **{f"{name}_{n}": one for name, of in groups for n, one in enumerate(of)})
    return samples


def times_ns(run: Callable[[], None], runs: float, least_s: float, most_s: float) -> list[int]:
    """Runs so often and at least so long, but at most `most_s`; at least once."""
    samples: list[int] = []
    clock, passed_s = time.perf_counter_ns, 0.0
    begin = clock()
    while not samples or (passed_s < most_s and (len(samples) < runs or passed_s < least_s)):
        start = clock()
        run()
        end = clock()
        samples.append(end - start)
        passed_s = (end - begin) / 1e9
    return samples


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[-1]))))  # noqa: T201
