"""Sessions in a database: SQLite or PostgreSQL."""
