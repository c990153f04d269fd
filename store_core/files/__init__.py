# SPDX-License-Identifier: Apache-2.0
"""Files of a store: read from local maps or any ``pyarrow.fs`` filesystem, written locally only."""
