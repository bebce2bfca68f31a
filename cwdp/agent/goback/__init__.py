"""Has queue pairs go back to what a dead path has swallowed, before their own timers run out."""
