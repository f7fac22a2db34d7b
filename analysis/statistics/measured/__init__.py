"""Tables of measurements: latency, memory, quality, audit, differences between models.

Open `cell_tables` first; for the audit `audit_table`, whose checks are `audit_rows` (single rows) and
`audit_panel` (platforms beside one another), both on the array functions of `audit`.
"""
