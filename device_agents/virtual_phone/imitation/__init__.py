"""The programs that stand in for the runners on a virtual phone."""
