"""Scripted players: policies that choose actions from views, and episodes played by them."""
