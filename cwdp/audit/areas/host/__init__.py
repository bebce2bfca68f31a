"""Areas of the host itself."""
