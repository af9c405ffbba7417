"""Numbers over many episodes, each a pure function from their facts to a frozen value.

episodes: the facts of an episode, read without its messages
quality · achievements · deaths · hooks · actions · costs · worlds · declared_hooks
"""
