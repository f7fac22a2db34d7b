"""`make setup` takes the newest Python that runs and that the libraries can be installed for."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WORKS = """#!/bin/sh
[ "$1" != -m ] || { mkdir -p .venv/bin .venv/lib/python3/site-packages
  cp "$0" .venv/bin/python; printf '#!/bin/sh\\n%s\\n' "$PIP" > .venv/bin/pip
  chmod +x .venv/bin/pip; }
"""
"""A Python that makes an environment whose pip does what `PIP` says."""
NO_FILE_FOR_13 = "! cmp -s .venv/bin/python ../python/python3.13"
SHIM = "#!/bin/sh\necho command not found >&2; exit 127\n"


@pytest.mark.parametrize(
    ("pythons", "pip", "taken"),
    [
        ({"3.13": WORKS, "3.12": WORKS, "3.11": WORKS}, "true", "3.13"),
        ({"3.13": SHIM, "3.12": SHIM, "3.11": WORKS}, "true", "3.11"),
        ({"3.13": WORKS, "3.12": WORKS}, NO_FILE_FOR_13, "3.12"),
        ({"3.13": WORKS}, "false", None),
        ({}, "true", None),
    ],
)
def test_the_newest_python_that_works_is_taken(
    tmp_path: Path, pythons: dict[str, str], pip: str, taken: str | None
) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "python"
    checkout.mkdir()
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    for number, (version, text) in enumerate(pythons.items()):
        # A line apart, so that a copy says which it was.
        (folder / f"python{version}").write_text(f"{text}# {number}\n")
        (folder / f"python{version}").chmod(0o755)
    for name in ("sh", "mkdir", "cp", "chmod", "rm", "ln", "touch", "echo", "cmp", "make"):
        (folder / name).symlink_to(shutil.which(name))
    environment = {"PATH": str(folder), "PIP": pip}
    done = subprocess.run(
        ["make", "setup"],
        cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    made = checkout / ".venv/bin/python"
    assert (done.returncode == 0) == (taken is not None), done.stderr
    assert made.exists() == (taken is not None)
    if taken:
        assert made.read_text() == (folder / f"python{taken}").read_text()
    else:
        assert "apt install" in done.stderr
