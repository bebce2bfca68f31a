"""Why jobs are slow: one cause each, with what speaks for it."""
