"""What is measured: by which commands, when and on what machine it was, and the tables of docs/measurements.md made of it."""
