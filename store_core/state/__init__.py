# SPDX-License-Identifier: Apache-2.0
"""Lock, ``abort`` and checkpoint: who has a store open, and how far it was flushed."""
