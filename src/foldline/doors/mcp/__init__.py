"""A client's own conversation as tools of an MCP server: `foldline mcp`."""
