"""The formats in which a session leaves and enters a store."""
