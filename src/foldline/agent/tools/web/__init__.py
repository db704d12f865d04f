"""The tool that fetches a page from the web."""
