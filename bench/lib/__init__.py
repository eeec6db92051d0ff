"""What the benchmarks share: programs run beside each other, CPU accounting, tables."""
