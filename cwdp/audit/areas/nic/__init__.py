"""Areas of NICs."""
