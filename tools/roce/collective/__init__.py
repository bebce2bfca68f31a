"""Collectives: ranks whose steps begin when their inputs have arrived."""
