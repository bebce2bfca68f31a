"""What is known of this host's processes that send: who they are, and of which job."""
