# SPDX-License-Identifier: Apache-2.0
"""The commands of ``rocketmq-store``: one module for each group of related commands."""
