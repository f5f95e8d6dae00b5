"""What an engine does, step by step, for those who watch it. Nothing here runs while nobody does."""
