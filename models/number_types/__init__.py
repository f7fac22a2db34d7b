"""Reads which number types a model file contains, by format and without any library of the format.

Open `file_types` first; the readers below it share `flatbuffer` and the result `stored_types`.
"""
