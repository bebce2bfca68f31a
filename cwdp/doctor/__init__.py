"""What works on this host, what does not, why, and what to do: facts are read once, checks judge them."""
