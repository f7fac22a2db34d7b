"""What a board says about itself: its text as values, and the judgement of a repeat.

Open `board_text` first.
"""
