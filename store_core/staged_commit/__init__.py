"""Append a whole job of staged records, so that it becomes visible by one write of eight bytes.

Tasks stage encoded records next to the store (`staged_part`); whoever commits writes them behind
the end of the log, all but the first eight bytes, and then those (`commit`). Whoever opens the
store after a crash compares the journal with the log (`resolve_open_jobs`).
"""
