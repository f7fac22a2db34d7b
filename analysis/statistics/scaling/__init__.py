"""How cost grows with batch, length and size of images, what a device sustains, what memory holds.

Open `scaling`; `curves` has its arithmetic, `scaling_points` its measurements.
"""
