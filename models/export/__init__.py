"""Exporters from a PyTorch network to a file that a runtime executes, behind one contract."""
