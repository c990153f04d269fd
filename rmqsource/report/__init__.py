# SPDX-License-Identifier: Apache-2.0
"""The report on stores: one HTML page."""
