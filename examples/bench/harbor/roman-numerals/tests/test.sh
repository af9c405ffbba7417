#!/bin/sh
# The share of tests that pass is the reward.
cd /app || exit 1
exec python3 -B /tests/check.py
