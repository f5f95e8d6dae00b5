"""The reference parts, complete. Stubs, the book's listings and the engine all come from here."""
