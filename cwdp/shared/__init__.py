"""What the host side and the manager both need; it imports neither."""
