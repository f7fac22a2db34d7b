"""Figures, each in two parts: `..._points` says what is shown, `draw_...` how."""
