"""Who measures what and when: pure decisions, the loop that obeys them, and the executors."""
