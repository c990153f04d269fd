# SPDX-License-Identifier: Apache-2.0
"""Counts that show how hard it is to find one's way in the code: ``python -m tests.house``."""
