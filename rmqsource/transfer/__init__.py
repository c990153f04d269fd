"""Move messages between stores and files: export, import, copy."""
