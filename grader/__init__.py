"""What grades the labs and makes their stubs. It looks down on everything; nothing imports it."""
