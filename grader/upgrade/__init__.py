"""`yaie lab upgrade`: a learner's package carried over to stubs that have changed since it was begun."""
