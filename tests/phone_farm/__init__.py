"""A double of Android phones behind the adb protocol, for tests, benchmarks and contributors.

The real adb client and server talk to it. Open `phone` first; `farm` starts several.
`python -m phone_farm` serves them until Ctrl-C.
"""
