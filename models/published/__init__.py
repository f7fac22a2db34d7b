"""Weights of decoders and encoders of text, as their publishers store them: a folder of files.

Open `published_folder` first; it reads the file format and what `config.json` says.
"""
