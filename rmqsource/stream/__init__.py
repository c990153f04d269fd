# SPDX-License-Identifier: Apache-2.0
"""Follow stores: a stream's offsets, the end of each batch, and changes of a log in between."""
