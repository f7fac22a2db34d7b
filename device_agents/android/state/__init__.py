"""Facts and state of a phone: cores, battery, heat, settings, and who has it.

Reading and parsing are separate.

Open `fitness` first: may this phone be measured now?
"""
