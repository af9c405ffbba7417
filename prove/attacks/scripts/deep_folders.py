"""Changes a file, and buries another below folders whose path is longer than a path can be."""

import os

token = os.environ["TOKEN"]
print(f"tried-{token}", flush=True)
with open("answer.txt", "w") as file:
    file.write(f"kept-{token}\n")
for _ in range(int(os.environ["DEPTH"])):
    name = "d" * int(os.environ["LENGTH"])
    os.mkdir(name)
    os.chdir(name)
with open("deep.txt", "w") as file:
    file.write("deep\n")
