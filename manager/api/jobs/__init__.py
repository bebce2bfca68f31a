"""What is asked of jobs and of what their programs do, and their metrics."""
