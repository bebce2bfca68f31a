"""Areas of facts: each module turns what a source tells into facts of one area of the catalogue."""
