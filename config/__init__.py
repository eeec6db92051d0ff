"""Typed settings, and the few small values that more than one room needs."""
