"""One-way delays of every path, window by window, and what they prove of addresses."""
