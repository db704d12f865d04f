"""What can be tested: a function, a class, an adapter of Foldline's own, a command, a proxy."""
