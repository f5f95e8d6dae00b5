"""Which rank is where: stage by stage, within a stage by its share of the layers."""

from dataclasses import dataclass

from yaie.core.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Place:
    """One of `tensor_parallel * pipeline_parallel` ranks. Rank 0 is in control's process.

    column: among those that split a stage's layers. stage: among the stages. With 2 of each:

        rank 0, rank 1    stage 0: the embedding and the first layers
        rank 2, rank 3    stage 1: the last layers and the output head
    """

    rank: int
    tensor_parallel: int
    pipeline_parallel: int

    @property
    def column(self) -> int:
        return self.rank % self.tensor_parallel

    @property
    def stage(self) -> int:
        return self.rank // self.tensor_parallel

    @property
    def size(self) -> int:
        """All ranks."""
        return self.tensor_parallel * self.pipeline_parallel


def places(config: EngineConfig) -> list[Place]:
    """Of all ranks."""
    shape = config.tensor_parallel, config.pipeline_parallel
    return [Place(rank, *shape) for rank in range(config.num_ranks)]


def answering_rank(config: EngineConfig) -> int:
    """The rank whose results count: the first of the last stage, where tokens are drawn."""
    return (config.pipeline_parallel - 1) * config.tensor_parallel
