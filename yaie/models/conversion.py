"""Safetensors for repositories that have only pickle: what the hub's own bot left there for them.

The bot converts a model's weights and offers them as a pull request; many owners of older models (such
as DialoGPT) never merged it. A pull request is a revision like any other, and safetensors is data only.
"""

from pathlib import Path

BOT = "SFconvertbot"
TITLE = "Adding `safetensors` variant of this model"


def converted_revision(model: str) -> str | None:
    """The bot's open pull request on top of the model's present main branch; None if there is none."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        main = api.list_repo_commits(model)[0].commit_id
        for pull in api.get_repo_discussions(
            model, author=BOT, discussion_type="pull_request", discussion_status="open"
        ):
            if (pull.author, pull.title) != (BOT, TITLE):
                continue
            parents = api.list_repo_commits(model, revision=pull.git_reference)[1:2]
            if [commit.commit_id for commit in parents] == [main]:
                return pull.git_reference
    except HfHubHTTPError:
        return None  # no access to the discussions: as if there were none
    return None


def cached_conversions(model: str) -> list[str]:
    """Such revisions of the model that are in the download cache, newest first."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    pulls = Path(
        constants.HF_HUB_CACHE,
        repo_folder_name(repo_id=model, repo_type="model"),
        "refs",
        "refs",
        "pr",
    )
    numbers = sorted((int(path.name) for path in pulls.glob("[0-9]*")), reverse=True)
    return [f"refs/pr/{number}" for number in numbers]
