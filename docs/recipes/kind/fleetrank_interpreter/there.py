"""Runs in the other Python: measures one ONNX file and prints one line of JSON."""

import json
import os
import platform
import sys
import time

import numpy as np
import onnxruntime


def versions():
    """What this Python has."""
    return {"python": platform.python_version(), "onnxruntime": onnxruntime.__version__}


def inputs_of(session, batch, seed):
    """Seeded inputs; a free first size is the batch."""
    rng = np.random.default_rng(seed)
    found = {}
    for one in session.get_inputs():
        sizes = [batch if place == 0 and not isinstance(size, int) else size
                 for place, size in enumerate(one.shape)]  # fmt: skip
        if one.type not in ("tensor(float)", "tensor(float16)"):
            raise ValueError(f"input {one.name} is {one.type}")
        kind = np.float32 if one.type == "tensor(float)" else np.float16
        found[one.name] = rng.standard_normal(sizes).astype(kind)
    return found


def measure(order):
    """Loads, warms up and times, as the policy says."""
    policy, clock = order["policy"], time.perf_counter_ns
    if order["affinity"] is not None:
        os.sched_setaffinity(0, order["affinity"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = order["threads"], 1
    started = clock()
    session = onnxruntime.InferenceSession(
        order["path"], options, providers=["CPUExecutionProvider"]
    )
    load_ns = clock() - started
    feeds = inputs_of(session, order["batch"], order["seed"])

    def run():
        begin = clock()
        session.run(None, feeds)
        return clock() - begin

    first_ns, warmup, samples = run(), [], []
    while len(warmup) < policy["min_warmup_runs"] or sum(warmup) < 1e9 * policy["min_warmup_s"]:
        warmup.append(run())
        if sum(warmup) > 1e9 * policy["max_warmup_s"]:
            break
    while len(samples) < policy["min_runs"] or sum(samples) < 1e9 * policy["min_observed_s"]:
        samples.append(run())
        if len(samples) >= policy["max_samples"] or sum(samples) > 1e9 * policy["max_time_s"]:
            break
    return {
        "versions": versions(),
        "load_ns": load_ns,
        "first_inference_ns": first_ns,
        "warmup_runs": len(warmup),
        "samples_ns": samples,
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(versions() if asked["do"] == "describe" else measure(asked)))
