"""Modal sandboxes."""
