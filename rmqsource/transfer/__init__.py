# SPDX-License-Identifier: Apache-2.0
"""Move messages between stores and files: export, import, copy."""
