"""A fleet that exists in arithmetic only and loads real managers over a real bus as one of that size would."""
