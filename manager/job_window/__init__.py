"""What a job did in a window of the timeline: its bursts, the delays between its members, the queues that it crosses."""
