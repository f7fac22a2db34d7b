"""What a phone is and in which state: cores, battery, heat, settings; reading apart from parsing.

Open `readiness` first: may this phone be measured now?
"""
