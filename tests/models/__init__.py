"""Tests of models from outside."""
