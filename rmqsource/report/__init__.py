"""The report on stores: one HTML page."""
