"""HTTP: the OpenAI-compatible API, the admin API and the command line."""
