"""The settings of an agent: read from a file and the environment, checked, and said where each came from."""
