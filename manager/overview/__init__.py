"""What the pages and `cwdp top` show: findings in words, the whole, one leaf, one link, one queue pair, one job. No I/O."""
