"""Commands that ask a manager what programs do."""
