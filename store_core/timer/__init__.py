# SPDX-License-Identifier: Apache-2.0
"""Timer messages: messages that name the time of their delivery, by RocketMQ 5's timer wheel."""
