# SPDX-License-Identifier: Apache-2.0
"""Read-only views of a store that another process may be writing."""
