"""What the model is sent: the log, what may be folded of it, and the projection of both."""
