"""Task 8.2 beyond one answer: a thousand outputs, answers that stay, nothing left behind."""

from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, start_script, task
from grader.kit.api import STOP, make_request
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand

MANY = 1001
LONG = "An answer has as many outputs as it has tokens, and a call as many requests as prompts."


@task("8.2")
def test_an_answer_of_a_thousand_outputs(part: ModuleType) -> None:
    """The text of a choice is that of all its outputs, however many; so are the choices of a call."""
    request = make_request()
    reply = part.TextReply("m", [request.submitted])
    note(f"# {MANY} outputs, each with the text `ab`")
    for _ in range(MANY - 1):
        reply.add(request.says("ab"))
    reply.add(request.says("ab", STOP))
    got = reply.result()
    expect_equal(len(got["choices"][0]["text"]), 2 * MANY, "characters of the answer", why=LONG)
    expect_equal(got["usage"]["completion_tokens"], MANY, "completion_tokens", why=LONG)
    start_script()
    note(f"# {MANY} prompts of 4 tokens, each with one output")
    requests = [make_request(f"r{index}") for index in range(MANY)]
    reply = part.TextReply("m", [request.submitted for request in requests])
    for request in requests:
        reply.add(request.says("x", STOP))
    got = reply.result()
    texts = [choice["text"] for choice in got["choices"]]
    expect_equal(len(texts), MANY, "choices of the answer", why=LONG)
    expect_equal(got["usage"]["prompt_tokens"], 4 * MANY, "prompt_tokens", why=LONG)


@task("8.2")
def test_answers_leave_nothing_behind(part: ModuleType) -> None:
    """An answer that was made stays what it was, and a reply that was dropped is gone."""

    def answer(number: int) -> Any:
        reply = part.ChatReply("m", [make_request(f"r{number}", prompt=number).submitted])
        request = make_request(f"r{number}", prompt=number)
        reply.add(request.says(f"text {number}", STOP, tokens=number))
        part.replies.ending(request.says("", STOP))
        return [reply.usage(), reply.result()["choices"], reply.result()["usage"]]

    expect_results_stand([lambda n=n: answer(n) for n in (1, 2, 3)], "result and usage")  # type: ignore[misc]
    start_script()
    expect_keeps_nothing(lambda: answer(1), "add, result, usage and ending, of a reply each,")
