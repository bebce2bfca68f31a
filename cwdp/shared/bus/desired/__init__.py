"""What each host is to do, as the bus keeps it: documents, in parts, with what has changed of them since."""
