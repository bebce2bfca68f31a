"""Who asks the manager for something, by the unix socket or by TCP, and what that lets them do."""
