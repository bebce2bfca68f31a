"""Run the tests: `python -m tools.run_tests TIER...`."""
