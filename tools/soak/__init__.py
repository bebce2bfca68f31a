"""The soak: everything goes wrong in a lab, at random, for as long as one likes; what must hold meanwhile is watched."""
