"""Checks users' model files by format, copies each into one file and counts its cost.

Open `onnx_file` first; the other formats are shorter.
"""
