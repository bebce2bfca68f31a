"""The page: what it costs the manager, how long a viewer waits, and whether viewers disturb the clocks."""
