"""A manager and an agent for each host of a lab, and how experiments run them."""
