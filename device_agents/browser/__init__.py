"""A browser tab as a device: a page that fleetrank serves measures ONNX and TFLite files.

Open `agent` first, then `desk`, which hands tasks to tabs; `page` has what runs in the tab. The
kind and its runtimes enter by entry points, as those of other packages.
"""
