"""Where the time of one inference goes: shares of modules and operators.

Open `component_shares` first: the arithmetic. The tables are beside it.
"""
