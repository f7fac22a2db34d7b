"""Knows tables and statistics: from rows of measurements to conclusions with their doubts."""
