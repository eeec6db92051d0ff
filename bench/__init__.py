"""Benchmarks. Each `bench/NAME.py` is a program of its own; `make bench` runs them all."""
