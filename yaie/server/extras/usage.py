"""`stream_options.continuous_usage_stats`: every chunk says what has been used so far."""

from collections.abc import Iterator

from yaie.core.output import RequestOutput
from yaie.server.extras.wrapper import Json, Wrapper


class ContinuousUsage(Wrapper):
    """Adds `usage` to every chunk. Load generators count tokens by it."""

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes, each with the counts of the call, this output included."""
        usage: Json | None = None
        for chunk in self._reply.chunks(output):
            usage = usage or self._reply.usage()  # not once for each chunk: it counts all choices
            yield {**chunk, "usage": usage}
