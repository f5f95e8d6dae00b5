"""What `yaie bench` measures: a module for each of its commands, and what they share."""
