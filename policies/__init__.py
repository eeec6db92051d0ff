"""Routing policies: schema, loader, versions, and the shipped YAML files."""
