"""Counts the words of a file."""

import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        print(len(stream.read().split()))


if __name__ == "__main__":
    main()
