"""Fine-tuning: datasets of recorded episodes, jobs at a service, models of this machine.

A backend says where a service is, which models it trains and what it wants to hear; `client`
uploads, creates and asks; `follow` watches jobs until they end.
"""
