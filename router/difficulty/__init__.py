"""The difficulty score: pure functions of the request, no network."""
