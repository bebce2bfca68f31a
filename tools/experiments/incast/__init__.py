"""Many send to one: who, and what comes of it (`model`), delays on the wire (`wire`), and the command (`run`)."""
