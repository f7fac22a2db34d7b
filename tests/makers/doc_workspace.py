"""A workspace in which a page's commands can be tried: small models, made-up devices and rows."""

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import short_measuring
import yaml
from doc_blocks import Block, script_of
from fleet_rows import write_results

from fleetrank.orchestrator.cli.main import run

ROOT = Path(__file__).parents[2]
N_MODELS = 5
"""The fewest that a rank correlation is given for."""
SIMULATED = "sim-box"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGround:
    """What all pages share: the command, small models, and their exported files."""

    folder: Path

    @property
    def cards(self) -> Path:
        return self.folder / "cards"

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"


def make_trial_ground(folder: Path) -> TrialGround:
    ground = TrialGround(folder=folder)
    for made in (ground.cards, ground.artifacts, ground.programs):
        made.mkdir(parents=True)
    for number in range(N_MODELS):
        _write_model(ground.cards, f"tiny-{number}", channels=4 * (number + 1))
    command = ground.programs / "fleetrank"
    command.write_text(_COMMAND.format(
        python=shlex.quote(sys.executable),
        program=shlex.quote(short_measuring.PROGRAM),
        cards=shlex.quote(str(ground.cards)),
        artifacts=shlex.quote(str(ground.artifacts)),
        doctor=shlex.quote(str(folder / "doctor.txt")),
    ))  # fmt: skip
    command.chmod(0o755)
    return ground


_COMMAND = """#!/bin/sh
# One look at this machine is enough, for the doctor imports every library there is; what it thinks
# of the machine is not the page's matter.
if [ "$*" = doctor ] && [ -e {doctor} ]; then exec cat {doctor}; fi
{python} -P {program} "$@" || [ "$*" = doctor ] || exit $?
if [ "$*" = doctor ]; then echo "as on the page before" > {doctor}; fi
# A workspace that a page makes gets the small models, too.
if [ "$1" = init ]; then cp {cards}/* "$2/cards/" && ln -s {artifacts} "$2/artifacts"; fi
"""


def make_workspace(ground: TrialGround, folder: Path) -> Path:
    """A workspace with measured rows of three tiers, a simulated device and the usual sweeps."""
    assert run(["init", str(folder)]) == 0
    for file in ground.cards.iterdir():
        (folder / "cards" / file.name).write_bytes(file.read_bytes())
    (folder / "artifacts").symlink_to(ground.artifacts)
    (folder / "devices" / f"{SIMULATED}.yaml").write_text(f"name: {SIMULATED}\nkind: simulated\n")
    for sweep in (*(ROOT / "sweeps").glob("*.yaml"), folder / "sweeps/example.yaml"):
        (folder / "sweeps" / sweep.name).write_text(smaller_sweep(sweep.read_text(), n_models=2))
    write_results(folder / "results", n_samples=5)
    # Stands for the folder of somebody's published tables.
    (folder / "DIR").symlink_to(ROOT / "tests/data/timm")
    return folder


def smaller_sweep(text: str, *, n_models: int) -> str:
    """The same sweep with small models, few repeats and hardly any time for each.

    With five models it keeps its devices; with fewer it runs on a simulated one.
    """
    spec = yaml.safe_load(text)
    spec["models"] = [f"tiny-{number}" for number in range(n_models)]
    spec["runtimes"], spec["threads"] = ["onnx"], [1]
    if n_models < N_MODELS:
        spec["devices"] = [SIMULATED]
    else:
        spec["repeats"] = 1
    spec["measure"] = {
        "min_warmup_runs": 1, "min_warmup_s": 0, "min_runs": 5, "max_samples": 20, "max_time_s": 1,
    }  # fmt: skip
    return yaml.safe_dump(spec)


def run_page(ground: TrialGround, blocks: list[Block], workspace: Path) -> str:
    """Types and saves what a page says, from its first block to its last, in one shell.

    Raises:
        AssertionError: a command failed; holds all that was shown.
    """
    parts = ["PS4='+ $SECONDS s: '; set -euxo pipefail", *(_step(block) for block in blocks)]
    ended = subprocess.run(
        ["bash", "-c", "\n".join(parts)],
        cwd=workspace,
        env=os.environ | {
            "PATH": f"{ground.programs}:{os.environ['PATH']}",
            "HOME": str(ground.folder),
            "XDG_CACHE_HOME": str(ground.folder / "cache"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"exit code {ended.returncode}:\n{ended.stdout[-6000:]}"
    return ended.stdout


def _step(block: Block) -> str:
    if block.title is not None:
        text = block.text
        if block.title.startswith("sweeps/"):
            is_study = "local-cpu" in text and "edge-sim" in text
            text = smaller_sweep(text, n_models=N_MODELS if is_study else 2)
        return f"printf %s {shlex.quote(text)} > {shlex.quote(block.title)}"
    return script_of(block) if block.is_typed and block.reason is None else ""


def _write_model(folder: Path, name: str, *, channels: int) -> None:
    """One convolution over 32 x 32 pixels: exported, verified and measured in no time."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(channels).standard_normal((channels, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 32, 32])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, str(folder / f"{name}.onnx"))
    (folder / f"{name}.toml").write_text(
        f'family = "mobile_cnn"\nsource = "file"\nentry = "{name}.onnx"\n'
    )
