"""Installs the measuring code on a board: its text is run there by `python3 -c`, alone.

So it imports nothing of ours and is written for Python 3.6, to name a Python that is too old. Its
arguments are the folder, and size and sha256 of a zip file under zlib, which follows on standard
input.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Dict  # noqa: UP035 - of 3.6

OLDEST = (3, 10)
MARK = "fleetrank-board:"


def _main(folder: Path, size: int, sha256: str) -> Dict[str, str]:  # noqa: UP006
    if sys.version_info < OLDEST:
        return {"problem": "python", "found": sys.version.split()[0]}
    content = sys.stdin.buffer.read(size)
    if hashlib.sha256(content).hexdigest() != sha256:
        return {"problem": "damaged", "found": f"{len(content)} bytes"}
    place = folder / "code" / sha256
    aside = place.with_name(f"{sha256}.{os.getpid()}")
    try:
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(zlib.decompress(content))) as archive:
            archive.extractall(str(aside))
        try:
            aside.rename(place)
        except OSError:
            if not place.is_dir():  # else another host was faster
                raise
    except OSError as error:
        return {"problem": "storage", "found": f"{place}: {error.strerror}"}
    finally:
        shutil.rmtree(str(aside), ignore_errors=True)
    return {"installed": sha256}


if __name__ == "__main__":
    answer = json.dumps(_main(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    sys.stdout.write(MARK + answer + "\n")
