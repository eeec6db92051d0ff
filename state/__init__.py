"""Durable state that is not usage: the admin overlay and its history."""
