"""What is told to people and programs: the HTTP API and the Prometheus metrics."""
