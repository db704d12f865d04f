"""Tools that run processes, and what the agent runs in processes of their own."""
