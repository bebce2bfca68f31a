"""A fleet that exists in arithmetic only and loads a real manager over a real bus as one of that size would."""
