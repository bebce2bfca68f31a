"""What only the lab knows: how far clocks are off, and which spine a source port leads over."""
