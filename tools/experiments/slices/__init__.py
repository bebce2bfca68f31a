"""Bandwidth slices on one link: two hosts (`pair`), what they send and see (`traffic`), and the command (`run`)."""
