# SPDX-License-Identifier: Apache-2.0
"""Recovery of log and queues after a stop or a crash."""
