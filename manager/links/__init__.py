"""From one-way delays over known paths to the queue, the load and the capacity of each link."""
