"""Models of providers: the registry, the client, rate limits, budget and cost."""
