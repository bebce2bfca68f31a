"""What hosts tell of themselves, judged: checks as data, verdicts, and what changed since the last audit."""
