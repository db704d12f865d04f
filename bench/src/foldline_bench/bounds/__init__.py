"""What a bill could have been at best, known in hindsight."""
