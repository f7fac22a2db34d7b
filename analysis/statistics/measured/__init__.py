"""Tables of measurements: latency, memory, quality, audit, differences between models.

Open `cell_tables` first; for the audit, `audit_table`. Its checks are in `audit_rows` (single rows)
and `audit_panel` (platforms beside one another), on the array functions of `audit` and `units`.
"""
