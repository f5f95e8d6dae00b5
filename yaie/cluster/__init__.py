"""`yaie cluster`: replicas of the engine behind one endpoint, a Ray Serve application.

    client -- HTTP --> Serve's proxy --> ingress -- PrefixRouter --> replica
                                                                     replica

A `replica` holds an engine and the whole application of `yaie serve`. The `ingress` passes each HTTP
request on to one of them, and its answer back to the client. The `router` decides which: the replica
that has computed the longest beginning of the prompt, unless it is too busy. `application` puts them
together, for `yaie cluster` (`run`) and for a RayService on Kubernetes alike.

Ray comes with the extra `cluster`. What needs it imports it itself: the choice of a replica (`prefixes`,
`prompt_start`, `policy`), the settings and the messages do not.
"""
