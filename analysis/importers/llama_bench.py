"""What llama.cpp's `llama-bench -o json` writes: a record for each test, in a list.

Source: llama.cpp, tools/llama-bench/README.md. `n_prompt` tokens are read at once (`pp512`),
`n_gen` tokens made one by one (`tg128`), both after `n_depth` tokens; `avg_ns` is the mean time of
a whole test, without tokenising and sampling. The mapping in `llama_bench.toml` names what is added
here.
"""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

from fleetrank.analysis.importers.csv_map import OPTIONS, json_files, parse_records
from fleetrank.analysis.importers.importer import Importer, read_table
from fleetrank.analysis.importers.release import Release, read_number, whole

_PRECISIONS = {
    "F32": "fp32", "F16": "fp16", "BF16": "bf16", "Q8_0": "int8-dynamic",
    **dict.fromkeys(("Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "IQ4_XS", "MXFP4"), "int4"),
}  # fmt: skip
"""Types of weights; a row of another one, such as Q6_K, states no precision."""
_USUAL = {
    "n_batch": "2048", "n_ubatch": "512", "type_k": "f16", "type_v": "f16", "n_depth": "0",
    "n_gpu_layers": "99 -1 0", "split_mode": "layer", "main_gpu": "0", "flash_attn": "false 0 -1",
    "no_kv_offload": "false 0", "tensor_split": "0.00", "use_mmap": "true 1", "poll": "50",
    "embeddings": "false 0", "cpu_mask": "0x0", "cpu_strict": "false 0",
}  # fmt: skip
"""Settings to the values that are no option; no layers on a GPU is a tier."""


def completed(line: dict[str, str]) -> dict[str, str]:
    """A record with what the mapping needs; the steps after a depth are those after a prompt."""
    n_prompt, n_made, depth = (
        whole(read_number(line.get(f"n_{name}"))) or 0 for name in ("prompt", "gen", "depth")
    )
    usual = _USUAL | ({"n_depth": line.get("n_depth", "")} if n_made else {})
    options = {x: line[x] for x in usual if line.get(x, "") not in ("", *usual[x].split())}
    total_ns = None if n_prompt and n_made else read_number(line.get("avg_ns"))
    is_gpu = bool(line.get("gpu_info")) and line.get("n_gpu_layers") != "0"
    stem = re.split(r"[\\/]", line.get("model_filename", ""))[-1].removesuffix(".gguf")
    types = [word for word in line.get("model_type", "").split() if word in _PRECISIONS]
    steps = f"generate@{n_prompt + depth or 1}+{n_made}"
    return line | {
        OPTIONS: json.dumps(options, sort_keys=True, separators=(",", ":")),
        # llama.cpp's converter names each model so.
        "run.model": line.get("model_type", "") if stem.startswith("ggml-model") else stem,
        "run.device": line.get("gpu_info" if is_gpu else "cpu_info", ""),
        "run.tier": "gpu" if is_gpu else "cpu",
        "run.backend": line.get("backends", "").lower(),
        "run.precision": _PRECISIONS[types[0]] if types else "",
        "run.workload": steps if n_made else f"prefill@{n_prompt}",
        "run.ns": "" if total_ns is None else str(total_ns / (n_made or 1)),
    }


def read_runs(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    """Files of other content are another release: mostly of another machine."""
    files, mapping = json_files(path), read_table(Path(__file__).with_suffix(".toml"))
    version = hashlib.sha256(b"".join(files.values())).hexdigest()[:8]
    return (replace(parse_records(files, mapping, completed), version=version),)


IMPORTER = Importer(read=read_runs)
