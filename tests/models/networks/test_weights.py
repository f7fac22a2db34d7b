import csv
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from daily import daily

from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import FlopsMethod, WeightsKind
from fleetrank.models.cards.card import Cost, ModelCard, Source, Weights
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.errors import ExportError, UntrustedError
from fleetrank.models.networks.build import build_network, import_torchvision
from fleetrank.models.networks.cost import count_cost, stated_cost
from fleetrank.models.networks.examples import seeded_images
from fleetrank.models.networks.known_cost import known_cost
from fleetrank.models.networks.weights import calibrate, load_checkpoint, network_with_weights

pytestmark = pytest.mark.usefixtures("one_thread")
PUBLISHED_GMACS = {
    "resnet18": 1.814,
    "resnet50": 4.089,
    "densenet121": 2.834,
    "mobilenet_v2": 0.301,
    "mobilenet_v3_large": 0.217,
    "mnasnet1_0": 0.314,
    "squeezenet1_1": 0.349,
    "efficientnet_b0": 0.386,
    "inception_v3": 5.713,
    "convnext_tiny": 4.456,
    "deit_tiny": 1.26,
    "levit_128s": 0.305,
    "mobilevit_xxs": 0.42,
}
PUBLISHED_PARAMETERS = {
    # torchvision's metadata; Inception's 27,161,264 there include the classifier for training.
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "densenet121": 7_978_856,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "mnasnet1_0": 4_383_312,
    "squeezenet1_1": 1_235_496,
    "efficientnet_b0": 5_288_548,
    "inception_v3": 23_834_568,
    "convnext_tiny": 28_589_128,
    "deit_tiny": 5_717_416,
    "levit_128s": 7_777_058,
    "mobilevit_xxs": 1_272_024,
}
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


@pytest.mark.export
@pytest.mark.parametrize("name", daily(load_zoo(), "squeezenet1_1"))
def test_zoo_network_costs_what_is_published_and_stays_healthy_when_seeded(name: str) -> None:
    card = load_zoo()[name]
    network, _ = network_with_weights(card, Weights(), is_trusted=False)
    images = seeded_images(2, card.input_size or 0)
    cost = count_cost(network, (images[:1],))
    assert cost.macs == pytest.approx(PUBLISHED_GMACS[name] * 1e9, rel=0.02)
    assert cost.parameters == PUBLISHED_PARAMETERS[name]
    assert cost.method is FlopsMethod.COUNTED
    assert replace(cost, by_module=()) == known_cost(load_zoo()[name])
    assert 1e-2 <= output_std_without_denormals(network, images) <= 1e2


def output_std_without_denormals(network: torch.nn.Module, images: torch.Tensor) -> float:
    def check(layer: torch.nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            sizes = output.abs()
            assert not ((sizes > 0) & (sizes < SMALLEST_NORMAL)).any(), layer
            assert torch.isfinite(output).all(), layer

    for module in network.modules():
        module.register_forward_hook(check)
    with torch.no_grad():
        return float(network(images).std())


def test_torchvision_accuracies_are_those_of_the_weights_themselves() -> None:
    import_torchvision()
    from torchvision.models import get_model_weights

    for card in load_zoo().values():
        if card.source is Source.TORCHVISION:
            weights = get_model_weights(card.entry)[card.weights_tag]
            assert weights.meta["_metrics"]["ImageNet-1K"]["acc@1"] == card.accuracy_top1


@pytest.mark.thorough
def test_timm_weights_tags_exist() -> None:
    import_torchvision()
    import timm

    for card in load_zoo().values():
        if card.source is Source.TIMM:
            assert timm.models.get_pretrained_cfg(f"{card.entry}.{card.weights_tag}") is not None


def test_timm_accuracies_are_those_of_the_published_results() -> None:
    """Of the tag and the image size that the card names: timm lists several of each."""
    folder = Path(os.environ.get("FLEETRANK_PUBLIC_DATA", "../shared/data"))
    file = folder / "timm" / "results-imagenet.csv"
    if not file.is_file():
        pytest.skip(f"{file} is not here; FLEETRANK_PUBLIC_DATA names a folder with timm/ in it")
    with file.open(newline="", encoding="utf-8") as lines:
        published = {(row["model"], int(row["img_size"])): row for row in csv.DictReader(lines)}
    cards = [card for card in load_zoo().values() if card.source is Source.TIMM]
    assert len(cards) == 3
    for card in cards:
        row = published[f"{card.entry}.{card.weights_tag}", card.input_size]
        assert float(row["top1"]) == card.accuracy_top1


def test_same_seed_gives_the_same_network_and_another_seed_another() -> None:
    card = replace(load_zoo()["squeezenet1_1"], input_size=64)
    image = seeded_images(1, 64)
    with torch.no_grad():
        first, again, other = (
            network_with_weights(card, Weights(seed=seed), is_trusted=False)[0](image)
            for seed in (0, 0, 1)
        )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dying_activations_are_brought_back_by_calibration() -> None:
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1, bias=False), torch.nn.BatchNorm2d(3)).eval()
    network = torch.nn.Sequential(body, torch.nn.Flatten(), torch.nn.Linear(48, 10)).eval()
    images = seeded_images(8, 4)
    with torch.no_grad():
        body[0].weight.mul_(0.05)
        assert float(body(images).std()) < 0.1
        calibrate(network, [(images,)], (images,))
        assert float(body(images).std()) > 0.9
        assert float(network(images).std()) == pytest.approx(1.0, rel=0.3)
    assert not network.training


def test_silent_branches_are_woken_so_that_verification_sees_them() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LayerNorm(48))
    torch.nn.init.zeros_(network[1].weight)
    calibrate(network, [], (seeded_images(2, 4),))
    assert float(network[1].weight.detach().min()) > 0.1


def test_fused_attention_is_counted() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = attention

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = x.flatten(2).transpose(1, 2).repeat(1, 1, 3)[:, :, :8]
            return self.inner(tokens, tokens, tokens, need_weights=False)[0]

    macs = count_cost(Attention().eval(), (seeded_images(1, 4),)).macs
    projections = 16 * 8 * 8 * 4
    products = 2 * 16 * 16 * 8
    softmax = 2 * 16 * 16 * 2.5
    assert macs == projections + products + softmax


def test_stated_macs_go_before_counted_ones_and_none_are_guessed() -> None:
    card = load_zoo()["resnet18"]
    counted = Cost(macs=100, parameters=10, method=FlopsMethod.COUNTED)
    uncounted = Cost(macs=None, parameters=10, method=None)
    assert stated_cost(card, counted) == counted
    assert stated_cost(replace(card, macs=7), counted) == Cost(
        macs=7, parameters=10, method=FlopsMethod.FORMULA
    )
    assert stated_cost(card, uncounted) == uncounted
    assert stated_cost(card, None).flops is None


def test_unknown_network_gets_the_nearest_name() -> None:
    card = replace(load_zoo()["resnet18"], entry="resnet81")
    with pytest.raises(ExportError) as caught:
        build_network(card, is_pretrained=False, is_trusted=False)
    assert caught.value.remedy == "did you mean 'resnet18'?"


def test_entry_point_without_trust_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("raise SystemExit('imported')")
    card = entry_card(tmp_path, "nets:make")
    with pytest.raises(UntrustedError) as caught:
        build_network(card, is_pretrained=False, is_trusted=False)
    assert "`trust=true`" in caught.value.remedy


def test_workspace_package_named_like_ours_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        build_network(
            entry_card(tmp_path, "fleetrank.mine:make"), is_pretrained=False, is_trusted=True
        )
    assert "rename the folder fleetrank/" in caught.value.remedy


def entry_card(folder: Path, entry: str) -> ModelCard:
    return replace(
        load_zoo()["resnet18"],
        source=Source.ENTRY_POINT,
        entry=entry,
        import_folder=str(folder),
    )


def test_pretrained_weights_need_a_tag() -> None:
    card = replace(load_zoo()["resnet18"], weights_tag=None)
    with pytest.raises(ExportError, match="no pretrained weights"):
        network_with_weights(card, Weights(kind=WeightsKind.PRETRAINED), is_trusted=False)


def checkpoint(path: Path) -> Weights:
    return Weights(
        kind=WeightsKind.CHECKPOINT, checkpoint_path=str(path), checkpoint_sha256=file_sha256(path)
    )


def test_checkpoint_is_loaded(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, tmp_path / "c.pt")
    network = torch.nn.Linear(3, 2)
    load_checkpoint(network, checkpoint(tmp_path / "c.pt"))
    assert float(network.weight.detach().sum()) == 6


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize("weight", [Hostile(), torch.ones(5)], ids=["code", "another network"])
def test_a_checkpoint_that_would_run_code_or_does_not_fit_is_refused(
    tmp_path: Path, weight: object
) -> None:
    torch.save({"weight": weight}, tmp_path / "c.pt")
    with pytest.raises(ExportError, match="cannot be used"):
        load_checkpoint(torch.nn.Linear(3, 2), checkpoint(tmp_path / "c.pt"))


def test_checkpoint_changed_since_planning_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, tmp_path / "c.pt")
    weights = replace(checkpoint(tmp_path / "c.pt"), checkpoint_sha256="0" * 64)
    with pytest.raises(ExportError, match="changed after"):
        load_checkpoint(torch.nn.Linear(3, 2), weights)
