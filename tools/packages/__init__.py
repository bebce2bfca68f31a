"""What is installed on hosts: the wheel, the Debian packages, the agent's container image."""
