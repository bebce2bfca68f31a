"""Clock synchronisation in simulation: its errors, what it costs, and clocks that change."""
