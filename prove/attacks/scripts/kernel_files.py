"""Opens every file of the kernel for writing, and changes one that the whole host has."""

import os
import stat

print(f"tried-{os.environ['TOKEN']}", flush=True)
opened = 0
for top in (
    "/proc/sys",
    "/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/acpi",
    "/proc/kcore",
):
    walked = os.walk(top) if os.path.isdir(top) else [(os.path.dirname(top), [], [top[6:]])]
    for folder, _, names in walked:
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    opened += 1
            except OSError:
                pass
print(f"opened {opened} files for writing")
with open(os.environ["KNOB"], "w") as file:
    file.write(os.environ["VALUE"])
