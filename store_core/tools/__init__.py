# SPDX-License-Identifier: Apache-2.0
"""Work on a closed store: check, repair, salvage."""
