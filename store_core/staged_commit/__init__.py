# SPDX-License-Identifier: Apache-2.0
"""Append a whole job of staged records, so that it becomes visible by one write of eight bytes.

Tasks stage encoded records next to the store (`staged_part`). The committer writes them after the
end of the log, without the first eight bytes, and then those eight (`log_tail`). The next writer to
open the store after a crash compares the journal with the log (`resolve_open_jobs`).
"""
