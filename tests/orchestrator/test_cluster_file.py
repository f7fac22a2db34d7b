import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
CLUSTER_FILE = REPOSITORY / "cluster.yaml"


@pytest.fixture(scope="module")
def described() -> dict[str, object]:
    return yaml.safe_load(CLUSTER_FILE.read_text())


@pytest.mark.ray
def test_ray_accepts_the_cluster_file(described: dict[str, object]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(described))
    with pytest.raises(Exception, match="devices"):
        validate_config(prepare_config(described | {"devices": []}))


def test_a_new_workspace_gets_the_same_file() -> None:
    template = REPOSITORY / "orchestrator" / "templates" / "cluster.yaml"
    assert template.read_text() == CLUSTER_FILE.read_text()


def test_every_host_is_started_with_a_token_and_undistorted_workers(
    described: dict[str, object],
) -> None:
    written = " ".join(described["setup_commands"])
    assert "RAY_AUTH_MODE=token" in written
    assert "chmod 600 ~/.ray/auth_token" in written
    assert "RAY_worker_niceness=0" in written
    assert "RAY_worker_oom_score_adjustment=0" in written
    for start in _starts(described):
        assert ". ~/.fleetrank-ray.env;" in start
        assert '--labels="fleetrank-host=$(hostname)"' in start


def test_a_cut_link_is_noticed_within_25_s(described: dict[str, object]) -> None:
    written = " ".join(described["setup_commands"])
    seen = dict(re.findall(r"RAY_health_check_(\w+)=(\d+)", written))
    per_check_ms = int(seen["period_ms"]) + int(seen["timeout_ms"])
    assert per_check_ms * int(seen["failure_threshold"]) <= 25_000


def test_the_dashboard_answers_on_the_head_only(described: dict[str, object]) -> None:
    head, worker = _starts(described)
    assert "--dashboard-host=127.0.0.1" in head
    assert "--dashboard-host" not in worker


@pytest.mark.slow
@pytest.mark.parametrize("home", ["h", "a home", "h" * 11, "h" * 10 + "é", "long/" * 20])
def test_rays_folder_is_short_and_lies_inside_one_that_no_other_user_enters(
    described: dict[str, object], home: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        env = {"PATH": os.environ["PATH"], "HOME": f"{place}/{home}"}
        Path(env["HOME"]).mkdir(parents=True)
        script = f"{described['setup_commands'][-1]}; . ~/.fleetrank-ray.env; echo -n $RAY_TMPDIR"
        made = Path(subprocess.check_output(["bash", "-c", script], env=env, text=True))
        socket = made / "ray/session_2026-11-22_01-36-51_517459_4194304/sockets/plasma_store"
        assert len(os.fsencode(socket)) <= 107
        assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (os.getuid(), 0o700)
        assert made.is_relative_to(place) is (len(os.fsencode(env["HOME"])) <= 28)
        shutil.rmtree(made)
    for command in _starts(described):
        assert '--temp-dir="$RAY_TMPDIR/ray"' in command


def _starts(described: dict[str, object]) -> list[str]:
    roles = ("head_start_ray_commands", "worker_start_ray_commands")
    return [command for role in roles for command in described[role] if "ray start" in command]
