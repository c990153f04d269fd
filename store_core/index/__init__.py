# SPDX-License-Identifier: Apache-2.0
"""Index files: hash chains on disk, queries, dispatch into them."""
