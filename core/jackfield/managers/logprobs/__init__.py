"""Log-probabilities on their way to the client."""
