from pathlib import Path

import pytest
import yaml

MANIFEST = Path(__file__).parents[2] / "docs" / "kuberay.yaml"


@pytest.fixture(scope="module")
def described() -> dict[str, object]:
    return yaml.safe_load(MANIFEST.read_text())


@pytest.mark.ray
def test_ray_reads_the_manifest(described: dict[str, object]) -> None:
    """Ray's autoscaler derives a configuration from the object and checks it by its own schema."""
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )

    found = _derive_autoscaling_config_from_ray_cr(described)["available_node_types"]
    assert {name: node["labels"]["fleetrank-host"] for name, node in found.items()} == {
        "headgroup": "head",
        "cpu-1": "cpu-1",
        "gpu-1": "gpu-1",
    }
    assert found["gpu-1"]["resources"]["GPU"] == 1


def test_every_pod_is_guarded_by_a_token(described: dict[str, object]) -> None:
    assert described["spec"]["authOptions"] == {"mode": "token"}


def test_no_pod_distorts_what_it_measures(described: dict[str, object]) -> None:
    spec = described["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        container = group["template"]["spec"]["containers"][0]
        given = {entry["name"]: entry["value"] for entry in container["env"]}
        assert given["RAY_worker_niceness"] == "0"
        assert given["RAY_worker_oom_score_adjustment"] == "0"
        assert container["resources"]["requests"] == container["resources"]["limits"]
