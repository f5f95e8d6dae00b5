"""DeepSeek's two forms of calls, and how its models are told about tools.

V3, R1    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then the arguments
          between ```json and ```, <｜tool▁call▁end｜>, the next call on a line of its own, at last
          <｜tool▁calls▁end｜>
V3.1      <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{"city": "Bonn"}<｜tool▁call▁end｜>, one after the other

The chat templates that come with these models know how calls look, but do not list the tools: that is
left to the caller, in the system message. A template that does list them is left alone.
"""

import json
import re

from yaie.server.tools.formats import NAME, Json, ToolFormat
from yaie.server.tools.json_scanner import Malformed
from yaie.server.tools.parser import CallParser, Reading

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
LONGEST_NAME = 128

_MAKES_JSON = re.compile(r"""arguments['"]?\]?\s*\|\s*tojson""")
# In the words of the card of DeepSeek-V3.1, which its models know from their training.
_TELL = """\
## Tools
You have access to the following tools:

{listed}

IMPORTANT: ALWAYS adhere to this exact format for tool use:
{form}

Where:
- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- {several}"""


class DeepSeekParser(CallParser):
    """Reads both forms."""

    markers = (BEGIN, CALL)  # some models leave the outer one out

    def _calls(self, marker: str) -> Reading[None]:
        tag = marker if marker == CALL else (yield from self._one_of(CALL))
        while tag == CALL:
            yield from self._call()
            tag = yield from self._one_of(CALL, END)
        self._held = ""

    def _call(self) -> Reading[None]:
        name = yield from self._before_separator()
        character = yield from self._solid()
        if character != "{":  # the kind of tool came first
            name = ""
            while NAME.match(character):
                name += character
                character = yield from self._next()
            self._give_back()
            yield from self._one_of("```json")
            if (yield from self._solid()) != "{":
                raise Malformed
        yield from self._arguments(self._known(name))
        if (yield from self._one_of("```", CALL_END)) == "```":
            yield from self._one_of(CALL_END)
        self._held = ""

    def _before_separator(self) -> Reading[str]:
        text = yield from self._solid()
        while not text.endswith(SEPARATOR):
            if len(text) > LONGEST_NAME + len(SEPARATOR):
                raise Malformed
            text += yield from self._next()
        return text.removesuffix(SEPARATOR).rstrip()


class DeepSeekV31Format(ToolFormat):
    """The form of V3.1: a name, then plain JSON."""

    parser = DeepSeekParser
    between_calls = ""
    form = f"{BEGIN}{CALL}tool_call_name{SEPARATOR}tool_call_arguments{CALL_END}{END}"
    several = "For multiple tool calls, chain them directly without separators or spaces"

    def conversation(self, messages: list[Json], tools: list[Json] | None) -> list[Json]:
        """The messages: with the tools in the system message if the template does not list them, and
        the arguments of earlier calls as text if the template takes them as they are."""
        messages = [self._turn(message) for message in messages]
        if not tools or lists_tools(self._template):
            return messages
        told = self._told(tools)
        for index, message in enumerate(messages):
            if message.get("role") in ("system", "developer"):
                content = _joined(message.get("content"), told)
                return [*messages[:index], {**message, "content": content}, *messages[index + 1 :]]
        return [{"role": "system", "content": told}, *messages]

    def _turn(self, message: Json) -> Json:
        if not message.get("tool_calls") or _MAKES_JSON.search(self._template):
            return message
        return {**message, "tool_calls": [_with_text(call) for call in message["tool_calls"]]}

    def _told(self, tools: list[Json]) -> str:
        listed = "\n\n".join(
            f"### {it['name']}\nDescription: {it['description']}\n\n"
            f"Parameters: {json.dumps(it['parameters'], ensure_ascii=False)}"
            for it in (tool["function"] for tool in tools)
        )
        return _TELL.format(listed=listed, form=self.form, several=self.several)

    def _calls_rule(self, may_be_several: bool) -> str:
        begin, end = self._marker(BEGIN), self._marker(END)
        call = self._marker(CALL)
        more = f"({self.between_calls} {call} rest_of_call)*" if may_be_several else ""
        return (
            f"calls: {begin} more_calls\nmore_calls: {call} calls_behind\n"
            f"calls_behind: rest_of_call {more} {end}\n"
            f"rest_of_call: function {self._marker(CALL_END)}"
        )

    def _free_text(self) -> str:
        """Some models leave the outer marker out, which their parser allows."""
        heads = f"{self._head('head', BEGIN)}\n{self._head('inner_head', CALL)}"
        return f"start: TEXT | head more_calls | inner_head calls_behind\n{heads}"

    def _function(self, name: str, arguments: str) -> str:
        return f"{json.dumps(name)} {self._marker(SEPARATOR)} {arguments}"


class DeepSeekV3Format(DeepSeekV31Format):
    """The form of V3 and R1: the arguments in a fenced block."""

    between_calls = r'"\n"'
    form = (
        f"{BEGIN}{CALL}function{SEPARATOR}tool_call_name\n"
        f"```json\ntool_call_arguments\n```{CALL_END}{END}"
    )
    several = "For multiple tool calls, write one per line before the last tag"

    def _function(self, name: str, arguments: str) -> str:
        head = json.dumps(f"{name}\n```json\n")
        return f'"function" {self._marker(SEPARATOR)} {head} {arguments} "\\n```"'


def lists_tools(template: str) -> bool:
    """Whether a chat template tells the model about tools."""
    return re.search(r"\btools\b", template) is not None


def _joined(content: object, told: str) -> object:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": f"\n\n{told}"}]
    return f"{content}\n\n{told}" if content else told


def _with_text(call: Json) -> Json:
    function = call["function"]
    if isinstance(function["arguments"], str):
        return call
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}
