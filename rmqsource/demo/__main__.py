"""Run the tour: ``python -m rmqsource.demo``."""

import sys

from rmqsource.demo import tour

sys.exit(tour.main())
