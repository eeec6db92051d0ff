"""Metrics, the usage ledger and the log set-up."""
