"""Crafter over HTTP, and the clients through which the rest of assay plays it.

`client.LocalClient` and `http_client.HttpClient` have the same interface; the worlds are in
this process or on a server.
"""
