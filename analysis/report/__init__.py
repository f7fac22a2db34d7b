"""The transfer-analysis report as one self-contained page."""
