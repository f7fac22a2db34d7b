"""What language models cost: phases, tokens and whole answers.

Open `language` first.
"""
