"""What is read of jobs' own work."""
