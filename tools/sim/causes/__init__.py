"""Jobs in arithmetic that something slows down, and when the manager says why."""
