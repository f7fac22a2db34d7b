"""Events of a running sweep and the subscribers that show them."""
