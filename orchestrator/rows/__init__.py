"""A measurement as a row of the table.

Open `translate` first: it joins `known_columns` (model, platform, device) and `measured_columns`.
"""
