"""The tools that find, read and change files of the workspace."""
