"""Demonstrations: what they are, and the store that is searched by visual similarity (Eq. 3)."""
