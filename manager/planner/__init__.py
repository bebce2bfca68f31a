"""The closed loop: from queue pairs' rates and paths to where they are to go. Logic without I/O; time is an argument."""
