"""The hosts of the benchmark keep all their files in its folder."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.thorough]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
START = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
import orchestration
orchestration.HOSTS = 1
with orchestration.cluster(Path(sys.argv[2])) as address:
    print(address, Path(sys.argv[2], "ray/ray_current_cluster").read_text())
"""


def test_the_hosts_of_the_benchmark_need_no_folder_of_another_ray() -> None:
    # Ray's sockets allow no long path.
    with tempfile.TemporaryDirectory(prefix="fr") as folder:
        command = [sys.executable, "-P", "-c", START, str(BENCHMARKS), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    address, noted = done.stdout.split()
    assert noted == address
