"""The cost of a network that is known without building it."""

from fleetrank.foundation.vocabulary import FlopsMethod
from fleetrank.foundation.workload import IMAGE, Workload, WorkloadKind
from fleetrank.models.cards.card import Cost, ModelCard, Source

_COUNTED = {
    "resnet18": (1_814_073_344, 11_689_512),
    "resnet50": (4_089_184_256, 25_557_032),
    "densenet121": (2_834_161_664, 7_978_856),
    "mobilenet_v2": (300_774_272, 3_504_872),
    "mobilenet_v3_large": (216_589_760, 5_483_032),
    "mnasnet1_0": (314_415_872, 4_383_312),
    "squeezenet1_1": (349_151_936, 1_235_496),
    "efficientnet_b0": (385_814_752, 5_288_548),
    "inception_v3": (5_713_216_096, 23_834_568),
    "levit_128s": (305_781_117, 7_777_058),
    "deit_tiny": (1_259_540_010, 5_717_416),
    "convnext_tiny": (4_462_965_504, 28_589_128),
    "mobilevit_xxs": (414_680_576, 1_272_024),
}
"""MACs and parameters of the built-in networks of images, as `count_cost` counts them with the
pinned torchvision 0.28 and timm 1.0; a test counts them again."""
_USUAL_SIZE = 224
_SIZES = {"inception_v3": 299, "mobilevit_xxs": 256}
"""Pixels that these figures are of, where they are not `_USUAL_SIZE`."""


def known_cost(card: ModelCard, workload: Workload = IMAGE) -> Cost | None:
    """The cost of one inference of a network; `None` if only an export can count it.

    The figures are those that an export of the same card gives. A user's file has none here,
    because its export checks it; nor has a language model, whose cost depends on its workload, nor
    a network at another size of images than its own, nor a step of training.
    """
    if workload.kind is WorkloadKind.TRAIN:
        return None
    if card.language is not None or card.source is Source.FILE:
        return None
    if card.macs is not None and card.parameters is not None:
        return Cost(macs=card.macs, parameters=card.parameters, method=FlopsMethod.FORMULA)
    # A user's card cannot have the name of a built-in one.
    has_name = card.source in {Source.TORCHVISION, Source.TIMM} and card.name in _COUNTED
    if has_name and card.input_size == _SIZES.get(card.name, _USUAL_SIZE):
        macs, parameters = _COUNTED[card.name]
        return Cost(macs=macs, parameters=parameters, method=FlopsMethod.COUNTED)
    return None
