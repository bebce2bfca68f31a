"""Two jobs whose queue pairs collide: who is placed how (`model`), the command (`run`), other ways to choose paths (`rivals`)."""
