"""Worker processes: environment, jobs and results."""
