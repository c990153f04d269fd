# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol: frames, headers, connections."""
