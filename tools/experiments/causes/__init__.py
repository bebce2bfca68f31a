"""Why a job is slow: what is done to one, and what `cwdp why` makes of it."""
