"""A namespace of users in which a sandbox on an image can have all of them.

Without it bubblewrap maps a single number, and an image with two users cannot be unpacked. Only
root may map many; everybody else has the one who is root inside.
"""

import os
import shutil
import subprocess
from functools import cache
from typing import Final

from assay.errors import SandboxUnavailable

__all__ = ["CAPABILITIES", "user_namespace"]

CAPABILITIES: Final = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL"),
    *("CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"),
)
"""What root has in a sandbox on an image, towards what belongs to its namespace."""
_PATIENCE_S: Final = 30.0


@cache
def user_namespace() -> int | None:
    """A handle of the namespace that all sandboxes on images are in; None for who is not root.

    No namespace of users can be made within it: who makes one is root in it, and could mount
    memory that nobody counts.

    Raises:
        SandboxUnavailable: It cannot be made here.
    """
    if os.geteuid() != 0:
        return None
    unshare, nsenter = shutil.which("unshare"), shutil.which("nsenter")
    if unshare is None or nsenter is None:
        raise SandboxUnavailable("images need unshare and nsenter; install util-linux")
    with subprocess.Popen(
        [unshare, "--user", "sh", "-c", "echo up; read end"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise SandboxUnavailable("unshare cannot make a namespace of users here")
        own = f"/proc/{holder.pid}"
        for kind in ("uid_map", "gid_map"):
            with open(f"{own}/{kind}", "w", encoding="ascii") as file:
                file.write("0 0 4294967295")
        forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
        done = subprocess.run(
            [nsenter, f"--user={own}/ns/user", "sh", "-c", forbid],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        handle = os.open(f"{own}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    if done.returncode:
        os.close(handle)
        raise SandboxUnavailable(f"further namespaces cannot be forbidden: {done.stderr}")
    return handle
