"""The rows of commands, of files and of clusters."""
