"""Mock model server: chat models over HTTP, in the protocol of OpenAI, with fault injection.

    settings = ModelServerSettings(faults=Faults(latency=0.1, error_rate=0.2))
    with running(settings, {"mine": model}) as server:
        ...  # any client of the protocol, with server.base_url

`assay.serve_models` serves the built-in models.
"""
