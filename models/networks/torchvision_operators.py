"""Lets torchvision be imported beside a PyTorch build that its compiled operators do not fit."""

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_kept: list[object] = []
"""A Library takes its operators with it when it is collected."""


def import_torchvision() -> None:
    """Imports torchvision, declaring its two detection operators only where they are missing.

    Its wheel is built for CUDA; beside a CPU build of torch the operators do not load, and the
    import fails at `register_fake("torchvision::nms")`. Classification needs neither.
    """
    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    _kept.append(library)
    import torchvision  # noqa: F401
