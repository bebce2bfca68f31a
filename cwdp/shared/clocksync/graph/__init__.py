"""All clocks at one instant, solved from the fits of all edges. The manager runs it."""
