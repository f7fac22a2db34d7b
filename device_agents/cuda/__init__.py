"""NVIDIA GPUs, read through NVML.

Open `kind` first, then `agent`.
"""
