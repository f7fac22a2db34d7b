"""What a reader of a page would type and save, and a workspace in which it can be tried.

The recipes of CONTRIBUTING.md are followed to the letter in a copy of the packages.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path

import short_measuring
import yaml
from fleet_rows import write_results
from tiny_onnx import save_tiny_onnx

from fleetrank.orchestrator.cli.main import run

_FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n+)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SPAN = re.compile(r"(?<!`)`(fleetrank [^`]+)`")
_SYNOPSIS = re.compile(r"[\[|]|\.\.\.")
"""Marks of a form rather than of a command: `show NAME [--format a|b]`."""
COMMAND_LANGUAGES = ("bash", "console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block.

    Attributes:
        title: the file to save it as; `None` for what is typed or only shown.
        reason: why it cannot be run; `None` where it can.
    """

    language: str
    title: str | None
    reason: str | None
    text: str

    @property
    def is_typed(self) -> bool:
        return self.language in COMMAND_LANGUAGES


def blocks_of(page: str) -> list[Block]:
    """Every fenced block of a page."""
    return [
        Block(
            language=found["language"],
            title=found["title"],
            reason=found["reason"],
            text=found["text"],
        )
        for found in _FENCE.finditer(page)
    ]


def commands_of(block: Block, program: str) -> list[list[str]]:
    """The words after the program's name in each call of it, placeholders included."""
    called = [
        _called(words)
        for line in _logical_lines(script_of(block))
        for words in _simple_commands(line)
    ]
    return [words[1:] for words in called if words[:1] == [program]]


def _called(words: list[str]) -> list[str]:
    """The command itself: after `NAME=value`, or after the `--` of a program that runs it."""
    if "--" in words:
        words = words[words.index("--") + 1 :]
    return list(dropwhile(lambda word: re.fullmatch(r"[A-Z_]+=.*", word), words))


def spans_of(page: str) -> list[list[str]]:
    """The words of each command that stands inside a sentence."""
    return [shlex.split(span)[1:] for span in _SPAN.findall(page) if not _SYNOPSIS.search(span)]


def script_of(block: Block) -> str:
    """What is typed, without prompts and shown output."""
    return _without_prompts(block) if block.language == "console" else block.text


def pages_in(root: Path) -> list[Path]:
    """Every page whose commands a reader may try."""
    others = ("README.md", "CONTRIBUTING.md", "orchestrator/templates/README.md")
    return [*(root / name for name in others), *sorted((root / "docs").rglob("*.md"))]


def _without_prompts(block: Block) -> str:
    typed = [line[2:] for line in block.text.splitlines() if line.startswith(("$ ", "> "))]
    return "\n".join(typed) + "\n"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines as a shell reads them: a quotation or a backslash goes on in the next."""
    line = ""
    for part in text.splitlines():
        line += part
        if line.endswith("\\"):
            line = line[:-1]
            continue
        try:
            shlex.split(line, comments=True)
        except ValueError:
            line += "\n"
            continue
        yield line
        line = ""
    if line:
        raise ValueError(f"a quotation has no end: {line}")


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without what joins and redirects them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    is_target = False
    for word in lexer:
        if set(word) <= set("();|&"):
            yield words
            words = []
        elif set(word) <= set("<>&"):
            is_target = True
        elif is_target:
            is_target = False
        else:
            words.append(word)
    yield words


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


def make_workspace(ground: TrialGround, folder: Path, *, is_measured: bool = True) -> Path:
    """A workspace with rows of three tiers (if measured), a simulated device, the usual sweeps."""
    assert run(["init", str(folder)]) == 0
    for file in ground.cards.iterdir():
        (folder / "cards" / file.name).write_bytes(file.read_bytes())
    (folder / "artifacts").symlink_to(ground.artifacts)
    (folder / "devices" / f"{SIMULATED}.yaml").write_text(f"name: {SIMULATED}\nkind: simulated\n")
    for sweep in (*(ROOT / "sweeps").glob("*.yaml"), folder / "sweeps/example.yaml"):
        (folder / "sweeps" / sweep.name).write_text(smaller_sweep(sweep.read_text(), n_models=2))
    if is_measured:
        write_results(folder / "results", n_samples=5)
    for name in ("mine", "old", "new"):
        save_tiny_onnx(folder / f"{name}.onnx")
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
        timeout=600,
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


PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
OF_TESTS = "tests/"
"""Of the tests, a recipe changes the phone farm alone, which is copied beside the packages."""
RECIPES_PAGE = ROOT / "CONTRIBUTING.md"
_INCLUDED = re.compile(r'^--8<-- "(docs/recipes/[a-z_]+\.py)"\n', re.MULTILINE)
OF_WORKSPACES = "cards/"
"""A file of this folder belongs to the user's workspace, not to the packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One section of the page.

    Attributes:
        files: what is written or changed, in order: whole files, and changes in the form of `diff`.
        proof: shell commands that show the new thing at work.
    """

    title: str
    files: tuple[Block, ...]
    proof: str


def recipes() -> dict[str, Recipe]:
    """The sections with files, by title."""
    found = {}
    for section in re.split(r"^## ", RECIPES_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[
        1:
    ]:
        title = section.partition("\n")[0]
        blocks = [replace(block, text=whole(block.text)) for block in blocks_of(section)]
        files = tuple(block for block in blocks if block.title is not None)
        proof = "".join(block.text for block in blocks if block.language == "sh")
        if files:
            found[title] = Recipe(title=title, files=files, proof=proof)
    return found


def whole(text: str) -> str:
    """The text with the files that it includes, as MkDocs' `pymdownx.snippets` shows it."""
    return _INCLUDED.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), text)


class Copy:
    """A copy of the packages, and a workspace in which its command runs."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self._packages = folder / "copy" / "fleetrank"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self._packages / name, ignore=ignored)
        tests = self._packages.parent / OF_TESTS
        shutil.copytree(ROOT / OF_TESTS / "phone_farm", tests / "phone_farm", ignore=ignored)
        for path in (ROOT / "orchestrator/public").glob("*.*"):
            shutil.copy(path, self._packages / path.name)
        command = folder / "bin" / "fleetrank"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fleetrank "$@"\n')
        command.chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self._packages.parent}:{tests}",
            "COLUMNS": "200",
        }

    def follow(self, recipe: Recipe) -> set[str]:
        """Writes and changes its files; returns the paths that it touched."""
        return {self._take(block) for block in recipe.files}

    def _take(self, block: Block) -> str:
        assert block.title is not None
        bases = {OF_WORKSPACES: self.workspace, OF_TESTS: self._packages.parent}
        path = bases.get(f"{block.title.partition('/')[0]}/", self._packages) / block.title
        if block.language == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), block.text))
        else:
            assert not path.exists(), f"{block.title} exists already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
        return block.title

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs shell commands in the workspace; both streams are in `stdout`."""
        return subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=self.workspace,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )


def changed(text: str, change: str) -> str:
    """The text after a change in the form of `diff`: the lines to find, to add and to remove.

    A line `@@` separates two places.

    Raises:
        AssertionError: the lines to find are not there exactly once.
    """
    for place in re.split(r"^@@.*\n", change, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in place.splitlines(keepends=True)]
        before = "".join(line for sign, line in lines if sign != "+")
        after = "".join(line for sign, line in lines if sign != "-")
        assert text.count(before) == 1, f"{text.count(before)} times in the file:\n{before}"
        text = text.replace(before, after)
    return text
