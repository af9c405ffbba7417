"""Connects to a server: a given one, or a well-known public address."""

import os
import socket

host, _, port = os.environ.get("CHEAT_ADDRESS", "1.1.1.1:443").rpartition(":")
try:
    with socket.create_connection((host, int(port)), timeout=3) as connection:
        connection.sendall(b"the repository and its secrets\n")
    print("connected")
except OSError as error:
    print(f"not connected: {error}")
