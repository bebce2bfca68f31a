"""Commands that show what the manager knows of the whole cluster."""
