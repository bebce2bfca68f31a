"""Simulations of what the lab cannot hold; they feed the clock module that production uses."""
