"""The decode loop: select, draft, skip, verify, accept, complete (HeiSD section 4)."""
