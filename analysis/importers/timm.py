"""timm's inference benchmarks: `results/benchmark-infer-*.csv` of pytorch-image-models.

Source: huggingface/pytorch-image-models, `benchmark.py` (columns) and `results/README.md`. One
file is one device; `infer_step_time` is milliseconds per step of `infer_batch_size` samples, and
the batch is halved for a model until it fits, so only the time per sample can be compared.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import Importer, read_tables
from fleetrank.analysis.importers.release import (
    Equivalences,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    flops_columns,
    is_sentinel,
    load_equivalences,
    named,
    read_number,
    unequal_notes,
    whole,
)
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.user_file import read_csv

SOURCE = "timm"
LICENCE = "Apache-2.0, huggingface/pytorch-image-models"
_PRECISION = {"amp": "fp16", "amp_bf16": "bf16", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
"""`--amp` means float16 unless --amp-dtype says otherwise (timm benchmark.py)."""
_LOWEST_SPEED = 1e-6
"""One sample in eleven days is not a measurement; its time in nanoseconds may be infinite."""
_GIGA = 1e9
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
_READ = {*_NEEDED, "infer_gmacs", "param_count", "top1", "img_size"}

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


def _read_bench(name: str, content: bytes) -> Bench | None:
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
    header, lines = read_csv(content, name)
    places = {column: at for at, column in enumerate(header) if column in _READ}
    return [
        {column: cells[at] if at < len(cells) else "" for column, at in places.items()}
        for _, cells in lines
    ]


def _config_of(line: Line) -> Config | None:
    """Model and image size of a line; `None` if one of them is missing."""
    size = whole(read_number(line["infer_img_size"]))
    return None if not line["model"] or size is None else (line["model"], size)


def _all_macs(benches: Sequence[Bench]) -> dict[Config, tuple[float, ...]]:
    """The different GMACs in the files for a model at one size, smallest first."""
    found: dict[Config, set[float]] = defaultdict(set)
    for bench in benches:
        for line in bench.lines:
            macs, config = read_number(line.get("infer_gmacs")), _config_of(line)
            if config is not None and macs:
                found[config].add(macs)
    return {config: tuple(sorted(values)) for config, values in found.items()}


def _accuracies(content: bytes) -> dict[Config, Row]:
    """Columns with the best top-1 of each architecture at each size, and how it was chosen."""
    tags: dict[Config, list[tuple[float, str]]] = defaultdict(list)
    for line in _read_lines(ACCURACY_FILE, content):
        top1, size = read_number(line.get("top1")), whole(read_number(line.get("img_size")))
        if (tag := line.get("model")) and top1 is not None and size is not None:
            tags[tag.partition(".")[0], size].append((top1, tag))
    chosen: dict[Config, Row] = {}
    for config, found in tags.items():
        top1, tag = max(found)
        of = f"best of {len(found)} tags at {config[1]} px" if len(found) > 1 else "the only tag"
        source = f"timm {ACCURACY_FILE}: {tag}, {of}"
        chosen[config] = {"accuracy_top1": top1, "accuracy_source": source}
    return chosen


def _device_model(match: re.Match[str]) -> str:
    """The name of the processor in the name of a file."""
    return _DEVICES.get(match["device"], match["device"])


def _torch_version(match: re.Match[str]) -> str:
    """`pt240` is 2.4.0, `pt2100` is 2.10.0, `pt113` is 1.13.

    The files of PyTorch 1.10 to 1.13 state no third number.
    """
    digits = match["torch"]
    if re.fullmatch(r"11[0-3]", digits):
        return f"1.{digits[1:]}"
    return f"{digits[0]}.{digits[1:-1]}.{digits[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Facts about models, collected from all files."""

    equivalences: Equivalences
    macs: Mapping[Config, tuple[float, ...]]
    accuracy: Mapping[Config, Row]
    devices: Mapping[str, str]


def parse_timm(files: Mapping[str, bytes]) -> tuple[Release, ...]:
    """Reads timm's result files, name to content; one release for each version of PyTorch.

    Latency is 1 / `infer_samples_per_sec`, the mean time of one sample inside a batch. MACs are
    the largest that any file gives for model and size: some files leave attention out. Accuracy
    is the best top-1 of the pretrained tags tested at exactly that size.

    Raises:
        AnalysisError: no benchmark file, or one without the columns it needs.
    """
    benches = [bench for name in sorted(files) if (bench := _read_bench(name, files[name]))]
    if not benches:
        raise AnalysisError(
            "no file benchmark-infer-*.csv of timm", "name the folder `results` of a checkout"
        )
    context = _Context(
        equivalences=load_equivalences(SOURCE),
        macs=_all_macs(benches),
        accuracy=_accuracies(files.get(ACCURACY_FILE, b"")),
        devices=device_names(SOURCE, (_device_model(bench.match) for bench in benches)),
    )
    groups: dict[str, list[Bench]] = defaultdict(list)
    for bench in benches:
        groups[_torch_version(bench.match)].append(bench)
    skipped = sorted(set(files) - {bench.name for bench in benches} - {ACCURACY_FILE})
    return tuple(
        Release(
            source=SOURCE,
            version=f"pt{version}",
            licence=LICENCE,
            rows=tuple(
                _row(line, facts, context)
                for bench in group
                for facts in [_platform_facts(bench, context.devices)]
                for line in bench.lines
            ),
            notes=_notes(group, context, skipped),
        )
        for version, group in sorted(
            groups.items(), key=lambda item: tuple(map(int, item[0].split(".")))
        )
    )


def _row(line: Line, facts: Row, context: _Context) -> Row:
    config = _config_of(line)
    if config is None:
        blank = facts | {"model": f"{SOURCE}:{line['model'] or '?'}"}
        return drop(blank, "no image size", repr(line["infer_img_size"]))
    batch = whole(read_number(line["infer_batch_size"]))
    cast = f"precision: amp is {_AUTOCAST.get(str(facts['precision']))} autocast"
    amp = [cast] if '"amp"' in str(facts["options"]) else []
    row = facts | {
        "input_size": config[1],
        "parameters": whole(read_number(line.get("param_count")), 1e6),
        "runtime_settings": f'{{"batch":{batch or "null"}}}',
        "derived": [*_DERIVED, *amp],
        **_flops(config, context),
        **context.accuracy.get(config, {}),
    }
    row = named(row, f"{config[0]}@{config[1]}", context.equivalences)
    speed = read_number(line["infer_samples_per_sec"])
    if speed is None or speed <= _LOWEST_SPEED or is_sentinel(speed):
        return drop(row, "no throughput", repr(line["infer_samples_per_sec"]))
    latency_ns = NS_PER_S / speed
    return row | {"status": "ok", "latency_p50_ns": latency_ns, "latency_mean_ns": latency_ns}


_DERIVED = (
    "latency_p50_ns: mean per sample, 1e9 / infer_samples_per_sec",
    "parameters: from millions with two decimals",
)
_AUTOCAST = {"fp16": "float16", "bf16": "bfloat16"}


def _flops(config: Config, context: _Context) -> Row:
    if not (values := context.macs.get(config)):
        return {}
    text = "timm infer_gmacs, two decimals"
    if len(values) > 1:
        text += f"; files give {', '.join(f'{value:g}' for value in values)}, the largest taken"
    return flops_columns(whole(values[-1], _GIGA), text)


def _platform_facts(bench: Bench, devices: Mapping[str, str]) -> Row:
    """`batch` is the requested one, the file's largest; the actual one is in the row's settings."""
    match = bench.match
    batches = [read_number(line["infer_batch_size"]) or 0 for line in bench.lines]
    model = _device_model(match)
    is_gpu = match["cuda"] is not None
    version = _torch_version(match)
    options = ['"amp":true'] if match["arithmetic"].startswith("amp") else []
    options += ['"channels_last":true'] if match["layout"] == "nhwc" else []
    return {
        "source": SOURCE,
        "source_ref": bench.reference,
        "licence": LICENCE,
        "device": devices[model],
        "device_model": model,
        "tier": "gpu" if is_gpu else "cpu",
        "cpu_model": None if is_gpu else model,
        "runtime": "torch",
        "backend": "cuda" if is_gpu else "cpu",
        "mode": "compile" if match["dynamo"] else "eager",
        "precision": _PRECISION[match["arithmetic"]],
        "batch": round(max(batches)) or None,
        "options": "{" + ",".join(options) + "}",
        "runtime_version": f"{version}+cu{match['cuda']}" if is_gpu else version,
        "sample_kind": "throughput_derived",
        "statistic": "mean",
    }


def _notes(group: list[Bench], context: _Context, skipped: list[str]) -> tuple[str, ...]:
    configs = {config for bench in group for line in bench.lines if (config := _config_of(line))}
    differing = sum(len(context.macs.get(config, ())) > 1 for config in configs)
    unknown = sum(config not in context.macs for config in configs)
    untested = sum(config not in context.accuracy for config in configs)
    notes = [
        "Latency is the mean time of one sample inside a batch (1 / infer_samples_per_sec), not "
        "the time a single request waits.",
        f"MACs differ between files for {differing} of {len(configs)} model sizes; the largest "
        f"was taken. {unknown} have none.",
        f"Accuracy is the best pretrained tag at the same image size; {untested} of "
        f"{len(configs)} model sizes have none.",
    ]
    notes += [note for bench in group if (note := _batch_note(bench))]
    notes += [f"Not read: {name}, which is not an inference benchmark." for name in skipped]
    names = {f"{model}@{size}" for model, size in configs}
    return (*notes, *unequal_notes(names, context.equivalences))


def _batch_note(bench: Bench) -> str | None:
    batches = [batch for line in bench.lines if (batch := read_number(line["infer_batch_size"]))]
    if not batches or min(batches) == max(batches):
        return None
    smaller = sum(batch < max(batches) for batch in batches)
    return (
        f"{bench.name}: {smaller} of {len(batches)} models ran at a batch below {max(batches):g}, "
        f"down to {min(batches):g}."
    )


def _read_checkout(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    inside = path / "results"
    return parse_timm(read_tables(inside if inside.is_dir() else path, "*.csv"))


IMPORTER = Importer(read=_read_checkout)
