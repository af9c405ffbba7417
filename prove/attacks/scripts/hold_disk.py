"""Holds many times its share of the disk in files that have neither a name nor a handle."""

import ctypes
import mmap
import os
import socket
import time

print(f"tried-{os.environ['TOKEN']}", flush=True)
near, far = socket.socketpair()
libc = ctypes.CDLL(None)
for number in range(40):
    path = f"/tmp/held-{number}"
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    os.unlink(path)
    for _ in range(10):
        os.write(handle, os.urandom(1 << 20))
    if os.environ["HOW"] == "socket":
        socket.send_fds(near, [b"x"], [handle])
    else:
        # Python's own would keep the file open.
        libc.mmap(None, 10 << 20, mmap.PROT_READ, mmap.MAP_SHARED, handle, ctypes.c_long(0))
    os.close(handle)
print("held 400 MB", flush=True)
time.sleep(3)
