"""Users' model files by format: checked, copied into one file, their cost counted.

Open `onnx_file` first; the other formats are shorter.
"""
