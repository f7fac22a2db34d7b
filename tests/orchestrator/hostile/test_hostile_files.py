"""Files that people write, made to hang, to fill memory or to crash: each ends with code 2."""

import os
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_line import COMMAND, Ended, run_command, run_inside
from daily import daily
from lab_mapping import LAB_MAPPING

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.workspace import Workspace

Run = Callable[..., Ended]

MAX_CPU_S = 2.0
MAX_MESSAGE = 2000
LOOP = "link to itself"


@pytest.fixture(scope="module", autouse=True)
def loaded_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of good files; the libraries of the commands are loaded, which takes time."""
    folder = make_workspace(tmp_path_factory.mktemp("base") / "w")
    assert run(["--workspace", str(folder), "sweep", "plan", "example"]) == 0
    return folder


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; `test_the_program_itself...` starts the real one."""
    return partial(run_inside, capture=capfd)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "w")


def make_workspace(folder: Path) -> Path:
    return Workspace.init(folder).root


def assert_refused(ended: Ended, *words: str, base_cpu_s: float = 0) -> None:
    assert ended.code == 2, (ended.code, ended.stderr[-600:])
    assert "Traceback" not in ended.stderr
    assert "defect" not in ended.stderr
    assert len(ended.stderr) <= MAX_MESSAGE
    assert "\n  -> " in ended.stderr, ended.stderr
    for word in words:
        assert word in ended.stderr, ended.stderr
    assert ended.cpu_s - base_cpu_s < MAX_CPU_S


GOOD = "name: t\nmodels: [resnet18]\nruntimes: [onnx]\n"
_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
LONG = "1" * 5000
SWEEPS = {
    "aliases of aliases": (_BOMB + GOOD, "alias"),
    "50,000 names": (
        "name: t\nmodels:\n" + "".join(f"- model{n}\n" for n in range(50_000)),
        "50,000 values",
    ),
    "45,000 unknown names": (
        "name: t\nmodels:\n" + "".join(f"- model{n}\n" for n in range(45_000)),
        "and 44,990 more",
    ),
    "45,000 names of one model": (
        GOOD + "precision: " + str(["fp32"] * 45_000) + "\nbatch: 0",
        "'batch'",
    ),
    "20,000 unknown keys": (
        GOOD + "".join(f"key{n}: 1\n" for n in range(20_000)),
        "and 19,990 more",
    ),
    "more cells than fit": (
        GOOD + f"batch: {list(range(1, 20_000))}\nthreads: {list(range(1, 4000))}\n",
        "combinations",
    ),
    "5,000 lists in lists": (GOOD + "batch: " + "[" * 5000 + "]" * 5000, "nested"),
    "5,000 digits": (GOOD + f"repeats: {LONG}\n", "repeats"),
    "5,000 hexadecimal digits": (GOOD + f"repeats: 0x{LONG}\n", "repeats"),
    "a float of 400 digits": (GOOD + "seed: 1" + "0" * 399 + ".0\n", "seed"),
    "10^30 repeats": (GOOD + f"repeats: {10**30}\n", "repeats"),
    "infinity": (GOOD + "measure: {max_time_s: .inf}\n", "max_time_s"),
    "300 digits of seconds": (GOOD + "limits: {timeout_s: 1.0e+300}\n", "timeout_s"),
    "a size beyond floats": (GOOD + "limits: {memory_limit_bytes: 1e400}\n", "memory_limit_bytes"),
    "a size in words": (GOOD + f"limits: {{memory_limit_bytes: '{LONG}GB'}}\n", "memory_limit"),
    "an option of 400 digits": (
        GOOD + f"runtime_options: {{onnx: {{a: {'1' * 400}}}}}\n",
        "runtime_options",
    ),
    "a 13th month": (GOOD + "seed: 2020-13-01\n", "month"),
    "a tag of Python": (GOOD + "seed: !!python/object/apply:os.system [id]\n", "tag"),
    "a key of 500,000 letters": (GOOD + f"{'k' * 500_000}: 1\n", "t.yaml"),
    "a value of 500,000 letters": (GOOD + f"mode: {'v' * 500_000}\n", "mode"),
    "100,000 words of one line": (GOOD + f"devices: {'v ' * 100_000}\n", "device"),
    "50,000 directives": ("%TAG !a! x\n" * 50_000 + "---\n" + GOOD, "%"),
    "many documents": (GOOD + "---\n" * 50_000, "t.yaml"),
    "NUL": (GOOD + "\0", "t.yaml"),
    "Latin-1": ((GOOD + "description: é\n").encode("latin-1"), "UTF-8"),
    "nothing": ("", "models"),
    "2 MB": (GOOD + "#" * 2_000_000, "larger"),
    "NUL in a checkpoint's path": (
        GOOD + 'weights: {kind: checkpoint, path: "a\\0b"}\n',
        "weights.path",
    ),
    "a checkpoint's path of 5,000 letters": (
        GOOD + f"weights: {{kind: checkpoint, path: {'a' * 5000}}}\n",
        "weights.path",
    ),
    "a folder as checkpoint": (GOOD + "weights: {kind: checkpoint, path: .}\n", "weights.path"),
    "a device as checkpoint": (
        GOOD + "weights: {kind: checkpoint, path: /dev/zero}\n",
        "weights.path",
    ),
}


@pytest.mark.parametrize("name", daily(SWEEPS, *list(SWEEPS)[::3]))
def test_a_hostile_sweep_file_is_refused_at_once(name, workspace, command) -> None:
    content, word = SWEEPS[name]
    path = workspace / "sweeps" / "t.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(command(workspace, "sweep", "plan", "t"), "", word)


def test_a_sweep_with_a_byte_order_mark_and_line_ends_of_windows_is_read(
    workspace, command
) -> None:
    path = workspace / "sweeps" / "t.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    ended = command(workspace, "sweep", "plan", "t")
    assert ended.code == 0, ended.stderr


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def _to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


IRREGULAR: dict[str, Callable[[Path], None]] = {
    LOOP: _loop,
    "pipe": os.mkfifo,
    "zeros": _to("/dev/zero"),
    "standard input": _to("/dev/stdin"),
    "null": _to("/dev/null"),
    "folder": Path.mkdir,
    "socket": _socket,
    "kernel's log": _to("/proc/self/pagemap"),
}
PLACES = {
    "sweep": ("sweeps/t.yaml", ("sweep", "plan", "sweeps/t.yaml")),
    "sweep to run": ("sweeps/t.yaml", ("sweep", "run", "sweeps/t.yaml", "--inline")),
    "device": ("devices/t.yaml", ("devices", "list")),
    "device to check": ("devices/t.yaml", ("devices", "check", "t")),
    "card": ("cards/t.toml", ("models", "show", "t")),
    "card to export": ("cards/t.toml", ("models", "export", "t")),
    "mapping": ("t.toml", ("results", "import", "t.csv", "--from", "csv", "--map", "t.toml")),
    "table": ("t.csv", ("results", "import", "t.csv", "--from", "csv", "--map", "m.toml")),
}
MOST = ("sweep", "card")


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *((kind, place) for kind in IRREGULAR for place in MOST),
        *((kind, place) for kind in (LOOP, "pipe") for place in PLACES if place not in MOST),
        *(("zeros", place) for place in ("device", "mapping", "table")),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(kind, place, workspace, command) -> None:
    name, words = PLACES[place]
    (workspace / "t.csv").write_text("net,phone,ms\na,P,1\n")
    (workspace / "m.toml").write_text(LAB_MAPPING)
    (workspace / name).unlink(missing_ok=True)
    IRREGULAR[kind](workspace / name)
    reading, writing = os.pipe()
    try:
        # Standard input that never ends, as at a terminal.
        ended = command(workspace, *words, stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert_refused(ended, Path(name).stem)


FILE_CARD = 'family = "standard_cnn"\nsource = "file"\nentry = "{entry}"\n'
FILES_OF_CARDS = {
    LOOP: ".onnx", "pipe": ".tflite", "zeros": ".pte", "standard input": ".pt2", "null": ".keras",
    "socket": ".onnx",
}  # fmt: skip


@pytest.mark.parametrize("verb", ["show", "export"])
@pytest.mark.parametrize("kind", FILES_OF_CARDS)
def test_a_model_file_that_is_no_regular_file_is_refused_at_once(
    kind, verb, workspace, command
) -> None:
    name = f"m{FILES_OF_CARDS[kind]}"
    IRREGULAR[kind](workspace / "cards" / name)
    (workspace / "cards" / "t.toml").write_text(FILE_CARD.format(entry=name))
    assert_refused(command(workspace, "models", verb, "t"), "t.toml")


@pytest.mark.parametrize("kind", IRREGULAR)
def test_external_data_that_is_no_regular_file_is_refused_at_once(kind, workspace, command) -> None:
    pytest.importorskip("onnx")
    from tiny_onnx import save_external

    save_external(workspace / "cards" / "m.onnx", "m.onnx.data")
    IRREGULAR[kind](workspace / "cards" / "m.onnx.data")
    (workspace / "cards" / "t.toml").write_text(FILE_CARD.format(entry="m.onnx"))
    assert_refused(command(workspace, "models", "show", "t"), "'entry'", "m.onnx")


CARD = 'family = "standard_cnn"\nsource = "torchvision"\nentry = "resnet18"\n'
CARDS = {
    "20,000 unknown keys": (CARD + "".join(f"key{n} = 1\n" for n in range(20_000)), "19,990 more"),
    "900 lists in lists": (CARD + "macs = " + "[" * 900 + "]" * 900, "nested"),
    "5,000 digits": (CARD + f"macs = {LONG}", "macs"),
    "infinity": (CARD + "accuracy_top1 = inf", "accuracy"),
    "NUL in the path": (FILE_CARD.format(entry="a\\u0000b.onnx"), "entry"),
    "5,000 letters of a path": (FILE_CARD.format(entry="a" * 5000 + ".onnx"), "entry"),
    "500,000 letters of a family": (CARD.replace("standard_cnn", "f" * 500_000), "family"),
    "a key of 500,000 letters": (CARD + "k" * 500_000 + " = 1", "unknown key"),
    "a date": (CARD + "macs = 2020-01-01", "macs"),
    "nothing": ("", "source"),
    "2 MB": (CARD + "#" * 2_000_000, "larger"),
}


@pytest.mark.parametrize("name", daily(CARDS, *list(CARDS)[::3]))
def test_a_hostile_card_is_refused_at_once(name, workspace, command) -> None:
    content, word = CARDS[name]
    path = workspace / "cards" / "t.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(command(workspace, "models", "show", "t"), "t.toml", word)


DEVICE = "name: t\nkind: simulated\n"
PHONE = "name: t\nkind: android\noptions: {serial: x}\nregistration:\n"
DEVICES = {
    "a canary of no time": (PHONE + "  canary_latency_ns: [0, 0]\n", "canary_latency_ns"),
    "a canary beyond floats": (
        PHONE + f"  canary_latency_ns: [1{'0' * 399}, 1]\n",
        "canary_latency_ns",
    ),
    "a negative core": (PHONE + "  clusters: [[-1]]\n", "clusters"),
    "20,000 options": (
        DEVICE + "options:\n" + "".join(f"  k{n}: 1\n" for n in range(20_000)),
        "option",
    ),
    "an option of 400 digits": (DEVICE + f"options: {{seed: {'1' * 400}}}\n", "seed"),
    "5,000 lists in lists": (DEVICE + "options: " + "[" * 5000, "nested"),
    "a name of 5,000 letters": (DEVICE.replace("t", "t" * 5000), "name"),
}


@pytest.mark.parametrize("name", daily(DEVICES, *list(DEVICES)[::3]))
def test_a_hostile_device_file_is_refused_at_once(name, workspace, command) -> None:
    content, word = DEVICES[name]
    (workspace / "devices" / "t.yaml").write_text(content)
    assert_refused(command(workspace, "devices", "check", "t"), word)


DIGITS = "9" * 400
OPTIONS = {
    "whole": f"seed={DIGITS}",
    "exponent alone": "seed=1e400",
    "infinity": "seed=.inf",
    "negative": "seed=-1",
    "long text": f"seed={'v' * 50_000}",
    "nested": "seed=" + "[" * 5000,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_hostile_option_is_refused_at_once(name, workspace, command) -> None:
    ended = command(
        workspace, "devices", "add", "t", "--kind", "simulated", "--option", OPTIONS[name]
    )
    assert_refused(ended)
    assert not list((workspace / "devices").iterdir())


NUMBERS = {
    "query": ("query", "SELECT 1", "--timeout"),
    "rows": ("query", "SELECT 1", "--max-rows"),
    "serve": ("report", "serve", "--port"),
    "seed": ("report", "show", "flops", "--part", "frm", "--seed"),
    "prune": ("models", "export", "--max-size"),
}


@pytest.mark.parametrize("value", [DIGITS, "1e400", "nan", "9" * 100_000])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_hostile_number_on_the_command_line_ends_at_once(name, value, workspace, command) -> None:
    ended = command(workspace, *NUMBERS[name], value)
    assert_ends(ended)


def assert_ends(ended: Ended, *, base_cpu_s: float = 0) -> None:
    # 4 where the results to ask are looked for first.
    assert ended.code in (2, 4), ended.stderr[:500]
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr) <= MAX_MESSAGE
    assert ended.cpu_s - base_cpu_s < MAX_CPU_S


def test_init_in_a_folder_of_hostile_files_ends_at_once(tmp_path, command) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    os.mkfifo(folder / "README.md")
    _loop(folder / "cluster.yaml")
    assert_refused(command(tmp_path, "init", str(folder)))


@pytest.fixture(scope="module")
def base_cpu_s(loaded_workspace: Path) -> float:
    """What a command takes on good files, with the start of its process."""
    return run_command(loaded_workspace, "sweep", "plan", "example").cpu_s


def test_the_program_itself_refuses_at_once(workspace, base_cpu_s) -> None:
    """Limits of nesting, digits and memory belong to a process: a command ends by itself."""
    (workspace / "sweeps/t.yaml").write_text(SWEEPS["5,000 lists in lists"][0])
    assert_refused(run_command(workspace, "sweep", "plan", "t"), "nested", base_cpu_s=base_cpu_s)


def test_a_path_that_is_no_text_is_shown_escaped(workspace) -> None:
    ended = subprocess.run(
        [os.fsencode(COMMAND), "sweep", "plan", b"\xff\xfe.yaml"],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert b"\\udcff" in ended.stderr
