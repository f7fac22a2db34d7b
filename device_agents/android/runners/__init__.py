"""The measuring programs that run on a phone, one module each; `registry.py` lists them."""
