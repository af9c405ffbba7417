"""Access to the model for agents that run in a sandbox."""
