"""PyTorch and its `.pt2` files on CPUs and NVIDIA GPUs.

Open `torch_runner` first; `pt2_scan` checks an untrusted file.
"""
