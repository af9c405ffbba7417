"""The Crafter world over HTTP, and the client that the rest of assay plays through.

Both clients, `client.LocalClient` and `http_client.HttpClient`, do the same; only where the
worlds are differs.
"""
