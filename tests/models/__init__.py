"""Tests of remote models."""
