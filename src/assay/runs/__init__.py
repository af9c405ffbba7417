"""What runs of any kind of trial have in common. Knows no world and nobody who plays in it."""
