"""Links die under load: what is measured, and how (`model`), and the command (`run`)."""
