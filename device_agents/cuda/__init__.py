"""NVIDIA GPUs, read through NVML.

Open `agent` first, then `gpu_watch` and `nvml`.
"""
