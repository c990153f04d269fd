# SPDX-License-Identifier: Apache-2.0
"""Administration of a running cluster."""
