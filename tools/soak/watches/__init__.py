"""What is looked at again and again while a soak runs, each watch by a thread of its own."""
