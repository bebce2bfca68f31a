"""NICs of two-NIC hosts die under load: what is measured, and how (`model`), and the command (`run`)."""
