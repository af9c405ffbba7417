"""The way of an agent in a sandbox to its model: a proxy outside, a forwarder inside."""

from .forwarding import AgentProgram, forwarded
from .serving import ModelProxy

__all__ = ["AgentProgram", "ModelProxy", "forwarded"]
