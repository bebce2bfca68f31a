"""Jobs, inferred from how queue pairs send: who belongs together, and in which rhythm."""
