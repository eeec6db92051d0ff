"""The local LLM pool: queue lock, workers, engines."""
