"""Real TCP programs in the lab: two jobs of all-reduces that collide, and links that die under `iperf3`."""
