"""The page: a listener of its own that serves its files, what it reads, and what happens as it happens."""
