"""Fine-tuning: training data from recorded episodes, jobs at a service, models on this machine.

A backend defines the address of a service, the models it trains and the form of its requests.
`client` uploads files, creates jobs and queries them; `follow` polls jobs until they end.
"""
