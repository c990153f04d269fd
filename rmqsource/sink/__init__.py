# SPDX-License-Identifier: Apache-2.0
"""Turn rows into messages without Spark: options, checks, columnar encoding and staging."""
