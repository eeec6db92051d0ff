"""Scoring, the decision, and the dispatch that carries it out."""
