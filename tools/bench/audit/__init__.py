"""What it costs to audit hosts."""
