"""What executes an exported file: ONNX Runtime, PyTorch, LiteRT, behind one contract."""
