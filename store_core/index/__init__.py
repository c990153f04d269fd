"""Index files: hash chains on disk, queries, dispatch into them."""
