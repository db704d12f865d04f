"""Lower bounds on the bill of a session, with hindsight."""
