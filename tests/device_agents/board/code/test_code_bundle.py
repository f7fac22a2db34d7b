"""The code that is sent to a board: complete, small, and written for Python 3.10."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from daily import daily
from older_python import find_python
from ssh_board import SshBoard

from fleetrank.device_agents.board import first_contact
from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.board.code_bundle import code_bundle, measuring_modules, without_notes
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.foundation.vocabulary import Runtime, Status
from tests.device_agents.conftest import make_task

OLDER = "FLEETRANK_OLDER_PYTHON"
"""Path of a Python 3.10 with NumPy and ONNX Runtime."""
_IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root))
paths = [path for path in root.glob("fleetrank/**/*.py") if not path.name.startswith("__")]
for path in paths:
    importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
print(len(paths))
"""
_ROUND_TRIP = """
import sys
sys.path.insert(0, sys.argv[1])
from fleetrank.device_agents.contract.protocol import decode_request, encode_request
line = sys.stdin.read()
print(encode_request(decode_request(line)), end="")
"""


def unpacked(folder: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(zlib.decompress(code_bundle().content))) as archive:
        archive.extractall(folder)
    return folder


def test_the_bundle_is_small_and_the_same_each_time() -> None:
    first = code_bundle()
    code_bundle.cache_clear()
    assert code_bundle() == first
    assert len(first.content) < 153_000


def test_every_module_is_python_3_10() -> None:
    newer = re.compile(
        r"[*+?}]\+|\b(StrEnum|UTC|Self|Never|assert_never|assert_type|reveal_type|LiteralString|"
        r"override|ReprEnum|EnumType|file_digest|tomllib|ExceptionGroup|add_note|TaskGroup|chdir|"
        r"TypeVarTuple|Unpack|NotRequired|Required|dataclass_transform)\b"
    )
    for name, path in measuring_modules().items():
        tree = ast.parse(
            path.read_text(encoding="utf-8"), name, feature_version=first_contact.OLDEST
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                words = {one.name for one in node.names}
            elif isinstance(node, ast.Attribute):
                words = {node.attr}
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                words = {str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)}
            else:
                continue
            assert not any(map(newer.search, words)), f"{name}: {words} are newer than Python 3.10"


@pytest.mark.thorough
def test_a_module_travels_with_its_lines_and_without_notes() -> None:
    for name, path in measuring_modules().items():
        whole = path.read_text(encoding="utf-8")
        sent = without_notes(whole)
        assert sent.count("\n") == whole.count("\n"), name
        trees = [ast.parse(text) for text in (whole, sent)]
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = ""
        assert ast.dump(trees[0]) == ast.dump(trees[1]), name


def test_the_first_contact_is_read_by_python_3_6() -> None:
    text = Path(first_contact.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))


def test_the_bundle_has_no_module_of_the_conductor() -> None:
    names = set(measuring_modules())
    assert not {name for name in names if name.split(".")[1] not in {"device_agents", "foundation"}}
    assert not {name for name in names if ".android." in name}


@pytest.mark.slow
def test_the_bundle_needs_nothing_else_of_ours(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _IMPORT_ALL, str(unpacked(tmp_path))],
        check=False, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(measuring_modules()) - 1


@pytest.mark.slow
@pytest.mark.parametrize("version", daily(["3.10", "3.12", "3.13"], "3.10"))
def test_another_python_reads_and_writes_the_same_task(
    version: str, tmp_path: Path, onnx_file: Path
) -> None:
    python = find_python(version)
    line = encode_request(make_task(onnx_file, Runtime.ONNX, gpu_uuid="GPU-1", primer_path="p"))
    done = subprocess.run(
        [python, "-c", _ROUND_TRIP, str(unpacked(tmp_path))],
        input=line, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(line)


@pytest.mark.slow
@pytest.mark.skipif(OLDER not in os.environ, reason=f"needs {OLDER}")
@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_older_python_measures(board: SshBoard, onnx_file: Path, *, is_trusted: bool) -> None:
    agent = BoardAgent({**board.options, "python": os.environ[OLDER]})
    task = make_task(onnx_file, Runtime.ONNX, is_trusted=is_trusted, primer_path=str(onnx_file))
    seen = agent.measure(task)
    assert seen.status is Status.OK, seen.failure
    assert seen.run_peak_memory_bytes is not None
