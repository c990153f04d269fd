# SPDX-License-Identifier: Apache-2.0
"""Option texts become the settings of a read."""
