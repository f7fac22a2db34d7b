"""Checks users' model files by format, copies each into one file and counts its cost.

Open `onnx_file` first; `exporters` calls it for ONNX files, and `tflite_file` for TFLite files.
"""
