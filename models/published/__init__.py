"""Weights of decoders and encoders of text, as their publishers store them: a folder of files.

Open `published_folder` first; `safetensors_file` is the file format, `published_names` what layers
are called, `published_config` what `config.json` says.
"""
