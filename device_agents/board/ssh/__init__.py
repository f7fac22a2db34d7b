"""The system's OpenSSH client: runs commands on another machine and types its failures.

Open `ssh_connection` first.
"""
