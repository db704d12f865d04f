"""Ways in for people and programs: the commands of the terminal."""
