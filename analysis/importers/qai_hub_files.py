"""The files of AI Hub's model folders: the release of each, and its content."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.qai_hub_layouts import Job, node, read_jobs
from fleetrank.analysis.importers.release import Row, file_reference, read_number, whole
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import RECORD
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.yaml_events import check_events

FILES = ("perf.yaml", "info.yaml", "numerics.yaml", "_version.py")

_TESTS = {"test", "tests"}
"""Folders with fixtures: no model was measured there."""
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9}
_VERSION = re.compile(r"""__version__\s*=\s*["']([\w.]+)["']""")
_RELEASE_FOLDER = re.compile(r"v?\d+(\.\d+)+([a-z]+\d+)?")
"""Also `v0.4.0r1`, a release beside `v0.4.0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One model folder of one release."""

    name: str
    reference: str
    jobs: tuple[Job, ...]
    facts: Row


def read_models(files: Mapping[str, bytes]) -> list[tuple[str, list[HubModel]]]:
    """The model folders of each release, oldest first; files are relative path to content.

    A release is a folder `v1.2.3`, or the checkout whose `_version.py` is among the files.

    Raises:
        AnalysisError: no `perf.yaml`, or one that is not YAML.
    """
    releases: dict[str, list[HubModel]] = defaultdict(list)
    for path in sorted(files):
        if PurePosixPath(path).name == "perf.yaml" and not _TESTS & {*PurePosixPath(path).parts}:
            releases[_release_of(path, files)].append(_read_model(path, files))
    if not releases:
        raise AnalysisError(
            "no perf.yaml of AI Hub", "name a checkout of ai-hub-models, or a folder of models"
        )
    return sorted(releases.items(), key=lambda item: _order(item[0]))


def _release_of(path: str, files: Mapping[str, bytes]) -> str:
    for part in PurePosixPath(path).parts:
        if _RELEASE_FOLDER.fullmatch(part):
            return part
    for name, content in files.items():
        if PurePosixPath(name).name == "_version.py" and (
            match := _VERSION.search(content.decode(errors="replace"))
        ):
            return f"v{match[1]}"
    return "unknown"


def _order(version: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)), version


def _read_model(path: str, files: Mapping[str, bytes]) -> HubModel:
    folder = PurePosixPath(path).parent
    beside = {
        name: node(_yaml(str(folder / name), files.get(str(folder / name), b"")))
        for name in ("info.yaml", "numerics.yaml")
    }
    return HubModel(
        name=folder.name,
        reference=file_reference(f"{folder.name}/perf.yaml", files[path]),
        jobs=tuple(read_jobs(_yaml(path, files[path]))),
        facts=_info_facts(beside["info.yaml"]) | _accuracy(beside["numerics.yaml"]),
    )


def _yaml(path: str, content: bytes) -> object:
    import yaml

    # The loader in C is ten times faster, but not every wheel has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        check_events(yaml.parse(content, Loader=loader), path, RECORD)
        return yaml.load(content, Loader=loader)  # noqa: S506
    except BadFileError as error:
        raise AnalysisError(error.message, "fetch it again") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        # PyYAML lets through what its conversions raise: a 13th month, `!!bool maybe`.
        raise AnalysisError(
            f"{path} is not YAML: {shortened(str(error), 300)}", "fetch it again"
        ) from error


def _info_facts(info: Mapping[str, object]) -> Row:
    details = node(info.get("technical_details"))
    sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(details.get("Input resolution")))
    count = re.fullmatch(r"([\d.]+)([KMB])", str(details.get("Number of parameters")))
    square = sizes is not None and sizes[1] == sizes[2]
    parameters = None if count is None else whole(read_number(count[1]), _UNITS[count[2]])
    return {
        "input_size": int(sizes[1]) if sizes is not None and square else None,
        "parameters": parameters,
    }


def _accuracy(numerics: Mapping[str, object]) -> Row:
    """Top-1 of the float model, as tested by the vendor on part of ImageNet."""
    metrics = numerics.get("metrics")
    for entry in metrics if isinstance(metrics, list) else []:
        metric = node(entry)
        top1 = read_number(metric.get("partial_torch_metric"))
        if "imagenet" in str(metric.get("dataset_name")) and top1 is not None:
            n = metric.get("num_partial_samples")
            source = f"AI Hub numerics.yaml: float model on {n} images of ImageNet"
            return {"accuracy_top1": top1, "accuracy_source": source}
    return {}
