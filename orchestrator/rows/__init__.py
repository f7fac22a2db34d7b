"""A measurement as a row of the table.

Open `translate` first; `measured_columns` has the columns that a measurement gives.
"""
