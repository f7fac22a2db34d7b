from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.ray
@pytest.mark.parametrize("path", ["cluster.yaml", "orchestrator/templates/cluster.yaml"])
def test_ray_accepts_the_cluster_file(path: str) -> None:
    from ray.autoscaler._private.util import (
        prepare_config,
        validate_config,
    )

    validate_config(prepare_config(yaml.safe_load((REPOSITORY / path).read_text())))
