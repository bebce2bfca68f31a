"""What the queue pairs of the fleet send, and how long their data packets take."""
