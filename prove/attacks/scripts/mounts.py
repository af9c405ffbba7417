"""Makes device nodes, mounts, and namespaces in which it is root, to write outside."""

import ctypes
import os
import stat
import subprocess

print(f"tried-{os.environ['TOKEN']}", flush=True)
libc = ctypes.CDLL(None, use_errno=True)
target = os.environ["MARK"]
for command in (
    f"mount -o remount,rw,bind /usr && touch {target}",
    "mount -t tmpfs none /grading",
    "mount -t proc proc /proc",
    f"unshare -Urm sh -c 'mount -o remount,rw,bind /usr && touch {target}'",
    "nsenter -t 1 -m -U touch " + target,
    f"chroot /proc/1/root touch {target}",
    f"touch {target}",
    "mount --bind /tmp /usr",
):
    subprocess.run(["sh", "-c", command], capture_output=True, check=False)
for name, kind in (("disk", stat.S_IFBLK), ("memory", stat.S_IFCHR)):
    try:
        os.mknod(name, kind | 0o666, os.makedev(8 if kind == stat.S_IFBLK else 1, 1))
    except OSError as error:
        print(name, error)
os.system("sleep 2")
