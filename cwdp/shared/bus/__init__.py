"""The message bus: typed messages, desired documents, and the connection that carries both."""
