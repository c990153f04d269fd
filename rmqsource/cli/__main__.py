# SPDX-License-Identifier: Apache-2.0
"""``python -m rmqsource.cli``: the command line without the script ``rocketmq-store``."""

from rmqsource.cli.entry import main

main()
