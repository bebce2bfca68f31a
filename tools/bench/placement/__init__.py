"""Placement of queue pairs: whole plans, and the steps of a planner while little changes."""
