"""Variables named YAIE_*: which mean something, what is a misspelling, what is only warned of."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.variables import (
    MOST_EDITS,
    NO_SETTINGS,
    edits,
    known_variables,
    refuse_misspelled,
    without_effect,
)
from yaie.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
KNOWN = known_variables(EngineConfig, ServerSettings)
READ = re.compile(r"""["']YAIE_([A-Z_]+)["']""")

# What the kubelet puts into containers beside services "yaie" and "yaie-model", from its documentation.
INJECTED = {
    "YAIE_SERVICE_HOST": "10.0.0.11",
    "YAIE_SERVICE_PORT": "8000",
    "YAIE_SERVICE_PORT_HTTP": "8000",
    "YAIE_PORT": "tcp://10.0.0.11:8000",
    "YAIE_PORT_8000_TCP": "tcp://10.0.0.11:8000",
    "YAIE_PORT_8000_TCP_PROTO": "tcp",
    "YAIE_PORT_8000_TCP_PORT": "8000",
    "YAIE_PORT_8000_TCP_ADDR": "10.0.0.11",
    "YAIE_MODEL_SERVICE_HOST": "10.0.0.12",
    "YAIE_MODEL_PORT": "udp://10.0.0.12:53",
    "YAIE_MODEL_PORT_53_UDP_ADDR": "10.0.0.12",
}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("YAIE_BLOCK_SIZ", "YAIE_BLOCK_SIZE"),
        ("YAIE_BLOKC_SIZE", "YAIE_BLOCK_SIZE"),
        ("YAIE_PREFIX_CACHE", None),
        ("YAIE_block_size", "YAIE_BLOCK_SIZE"),
        ("YAIE_MODELS", "YAIE_MODEL"),
        ("YAIE_CONFG", "YAIE_CONFIG"),
        ("YAIE_CASHE", "YAIE_CACHE"),
        ("YAIE_API_KEYS", "YAIE_API_KEY"),
        ("YAIE_NUMBLOCK", "YAIE_NUM_BLOCKS"),
        ("YAIE_NUMBLOK", None),
        ("YAIE_TUTOR", None),
    ],
)
def test_a_name_two_letters_from_a_known_one_is_refused_with_that_name(
    name: str, meant: str | None
) -> None:
    if meant is None:
        refuse_misspelled({name: "1"}, KNOWN)
        assert name in without_effect({name: "1"}, KNOWN)
        return
    with pytest.raises(ConfigError, match=rf"{name},.* did you mean {meant}\?") as refused:
        refuse_misspelled({name: "1"}, KNOWN)
    assert refused.value.param == name


def test_each_configuration_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match="YAIE_BLOCK_SIZE"):
        EngineConfig.load(environ={"YAIE_BLOC_SIZE": "32"})
    with pytest.raises(ConfigError, match="YAIE_QUEUE_TIMEOUT"):
        ServerSettings.load(environ={"YAIE_QUEUE_TIMEOUTS": "3"})


def test_known_names_are_neither_refused_nor_warned_of() -> None:
    environ = dict.fromkeys(KNOWN, "x") | {
        "PATH": "/bin",
        "MY_YAIE_THING": "1",
        "YAI_BLOCK_SIZE": "1",
    }
    refuse_misspelled(environ, KNOWN)
    assert without_effect(environ, KNOWN) == ""


def test_what_a_cluster_injects_is_neither_refused_nor_warned_of() -> None:
    refuse_misspelled(INJECTED, KNOWN)
    assert without_effect(INJECTED, KNOWN) == ""


def test_all_others_are_one_sentence() -> None:
    said = without_effect({"YAIE_TUTOR": "1", "YAIE_AUTHOR": "2", "YAIE_PORT": "9000"}, KNOWN)
    assert said.startswith("YAIE_AUTHOR, YAIE_PORT, YAIE_TUTOR are no settings and have no effect")


def test_no_known_name_is_a_misspelling_of_what_another_class_knows() -> None:
    """Each class is read alone, too, and must not refuse what belongs to the other."""
    engine, server = known_variables(EngineConfig), known_variables(ServerSettings)
    for name in server - engine:
        refuse_misspelled({name: "1"}, engine)
    for name in engine - server:
        refuse_misspelled({name: "1"}, server)


def test_edits_are_counted() -> None:
    for one, other in combinations(["", "a", "ab", "ba", "abc", "xabc"], 2):
        assert edits(one, other) == edits(other, one)
    assert edits("kitten", "sitting") == 3
    assert edits("flaw", "lawn") == 2
    assert edits("same", "same") == 0
    assert MOST_EDITS == 2


def test_the_list_beside_the_settings_is_what_the_sources_read() -> None:
    found = set()
    for folder in ("yaie", "grader", "book", "tests/judges", "tests/solutions", "solutions"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(READ.findall(path.read_text("utf-8")))
    settings = known_variables(EngineConfig, ServerSettings)
    assert {f"YAIE_{name}" for name in found} <= settings
    assert set(NO_SETTINGS) <= found | {"CONFIG"}  # which is the prefix and a word
