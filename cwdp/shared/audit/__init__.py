"""What hosts tell of themselves for an audit, and what their facts are called."""
