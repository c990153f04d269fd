# SPDX-License-Identifier: Apache-2.0
"""A broker's settings, and the files below ``config/``."""
