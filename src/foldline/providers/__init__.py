"""Talking to model servers, and counting as they do. What needs an optional package loads it when asked for."""
