"""Tasks in the layout of Harbor, run as they are."""
