"""NVIDIA GPUs, read through NVML.

Open `agent` first.
"""
