"""Reads what a probe keeps in its maps and buffers: rows, histograms, records, events, and the ledger."""
