"""Draft sources: cheap guesses of the next action, as trees of tokens."""
