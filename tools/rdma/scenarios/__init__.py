"""What is run in the virtual machine, and what is recorded of it."""
