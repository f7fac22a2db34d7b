"""ONNX Runtime on CPUs and NVIDIA GPUs.

Open `onnx_runner` first.
"""
