"""Linux boards and machines that are reached over ssh.

Open `agent` first, then `board_link`; `there` is the code that runs on the board.
"""
