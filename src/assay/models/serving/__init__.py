"""Chat models over HTTP, in the wire protocol of OpenAI, with faults on request.

    settings = ModelServerSettings(faults=Faults(latency=0.1, error_rate=0.2))
    with running(settings, {"mine": model}) as server:
        ...  # any client of the protocol, with server.base_url

`assay.serve_models` serves the built-in models.
"""
