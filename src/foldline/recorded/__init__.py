"""Sessions that were recorded in files, by this project or by others."""
