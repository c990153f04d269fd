# SPDX-License-Identifier: Apache-2.0
"""Background work of an open store: each service is a thread, and runs once on call."""
