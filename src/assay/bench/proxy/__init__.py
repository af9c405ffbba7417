"""How an agent in a sandbox reaches its model."""
