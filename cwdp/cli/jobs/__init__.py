"""Commands about jobs and what their programs do."""
