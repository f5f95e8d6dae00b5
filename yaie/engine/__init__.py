"""The engine: it puts the parts together and runs them."""
