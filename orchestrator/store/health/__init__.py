"""Are the stored results whole, and what can be made whole again? Open `verify` first."""
