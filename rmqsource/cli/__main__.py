"""``python -m rmqsource.cli``: the command line without its script."""

from rmqsource.cli.entry import main

main()
