"""Where windows live: the stores, each answering the same questions with a Tally."""
