"""Verification: which drafted tokens are good enough (HeiSD section 4.3)."""
