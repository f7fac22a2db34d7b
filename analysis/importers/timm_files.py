"""timm's result files: what their names say, their lines, and facts about models from all files.

Source: huggingface/pytorch-image-models, `benchmark.py` (columns) and `results/README.md`.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import file_reference, read_number, whole

ACCURACY_FILE = "results-imagenet.csv"

_FILE = re.compile(
    r"benchmark-infer-(?P<arithmetic>amp_bf16|amp|fp32|fp16|bf16)-(?P<layout>nchw|nhwc)"
    r"-pt(?P<torch>\d{3,})-(?:cu(?P<cuda>\d+)-)?(?:cpu-)?(?P<device>[A-Za-z0-9_]+)"
    r"(?P<dynamo>-dynamo)?\.csv"
)
_DEVICES = {
    "rtx3090": "NVIDIA GeForce RTX 3090",
    "3090": "NVIDIA GeForce RTX 3090",
    "rtx4090": "NVIDIA GeForce RTX 4090",
    "4090": "NVIDIA GeForce RTX 4090",
    "rtx5090": "NVIDIA GeForce RTX 5090",
    "5090": "NVIDIA GeForce RTX 5090",
    "i9_10940x": "Intel Core i9-10940X",
    "i7_12700h": "Intel Core i7-12700H",
}
"""File names write one card in two ways; another device keeps the name of its file."""
_NEEDED = ("model", "infer_img_size", "infer_samples_per_sec", "infer_batch_size")

Config = tuple[str, int]
"""Model and image size in pixels."""
Line = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One benchmark file: what its name says, and its lines."""

    name: str
    reference: str
    match: re.Match[str]
    lines: tuple[Line, ...]


def read_bench(name: str, content: bytes) -> Bench | None:
    """One benchmark file; `None` for a file of another name.

    Raises:
        AnalysisError: it is not a CSV file, or lacks a column.
    """
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    lines = _read_lines(name, content)
    missing = [column for column in _NEEDED if not lines or column not in lines[0]]
    if missing:
        raise AnalysisError(
            f"{name} lacks {', '.join(missing)}", "fetch the file again, or leave it out"
        )
    return Bench(
        name=name, reference=file_reference(name, content), match=match, lines=tuple(lines)
    )


def _read_lines(name: str, content: bytes) -> list[Line]:
    try:
        # A short line leaves its last columns None, a long one has a rest: neither is text.
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig")), restval="")
        return [{key: line[key] for key in line if key is not None} for line in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(f"{name} is not a CSV file: {error}", "fetch it again") from error


def config_of(line: Line) -> Config | None:
    """Model and image size of a line; `None` if one of them is missing."""
    size = whole(read_number(line["infer_img_size"]))
    return None if not line["model"] or size is None else (line["model"], size)


def all_macs(benches: Sequence[Bench]) -> dict[Config, tuple[float, ...]]:
    """The different GMACs in the files for a model at one size, smallest first."""
    found: dict[Config, set[float]] = defaultdict(set)
    for bench in benches:
        for line in bench.lines:
            macs, config = read_number(line.get("infer_gmacs")), config_of(line)
            if config is not None and macs:
                found[config].add(macs)
    return {config: tuple(sorted(values)) for config, values in found.items()}


def accuracies(content: bytes) -> dict[Config, tuple[float, str]]:
    """Best top-1 of each architecture at each size, and how it was chosen."""
    tags: dict[Config, list[tuple[float, str]]] = defaultdict(list)
    for line in _read_lines(ACCURACY_FILE, content):
        top1, size = read_number(line.get("top1")), whole(read_number(line.get("img_size")))
        if (tag := line.get("model")) and top1 is not None and size is not None:
            tags[tag.partition(".")[0], size].append((top1, tag))
    chosen = {}
    for config, found in tags.items():
        top1, tag = max(found)
        of = f"best of {len(found)} tags at {config[1]} px" if len(found) > 1 else "the only tag"
        chosen[config] = (top1, f"timm {ACCURACY_FILE}: {tag}, {of}")
    return chosen


def device_model(match: re.Match[str]) -> str:
    """The name of the processor in the name of a file."""
    return _DEVICES.get(match["device"], match["device"])


def torch_version(match: re.Match[str]) -> str:
    """`pt240` is 2.4.0, `pt2100` is 2.10.0, `pt113` is 1.13.

    The files of PyTorch 1.10 to 1.13 state no third number.
    """
    digits = match["torch"]
    if re.fullmatch(r"11[0-3]", digits):
        return f"1.{digits[1:]}"
    return f"{digits[0]}.{digits[1:-1]}.{digits[-1]}"
