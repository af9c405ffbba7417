"""The networks of the architectures; needs torch."""
