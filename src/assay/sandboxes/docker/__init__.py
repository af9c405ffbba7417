"""Docker sandboxes."""
