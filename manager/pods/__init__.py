"""The parts of a large fleet, each with a leader of its own: what leaders tell each other."""
