"""Models of providers: which there are, how they are called, and what that costs."""
