# SPDX-License-Identifier: Apache-2.0
"""State of a broker besides messages: topics, groups and their offsets."""
