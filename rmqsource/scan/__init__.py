# SPDX-License-Identifier: Apache-2.0
"""Options and filters become a predicate, then splits, then batches of rows."""
