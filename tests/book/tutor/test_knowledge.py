"""What the tutor is taught: complete entries, facts that only the right answer mentions."""

from book.tutor.glossary import Knowledge, load_knowledge, mentions, sentences
from book.tutor.templates import expand, normalise, sample, tidy

KNOWLEDGE: Knowledge = load_knowledge()


def test_the_glossary_covers_the_field() -> None:
    expected = {
        "paged KV cache", "radix attention", "continuous batching", "speculative decoding",
        "FlashAttention", "CUDA graph", "GPTQ", "tensor parallelism", "structured output", "YAIE",
    }  # fmt: skip
    assert expected <= KNOWLEDGE.by_name.keys()
    assert len(KNOWLEDGE.terms) >= 120


def test_names_and_aliases_are_unique() -> None:
    owners: dict[str, str] = {}
    for term in KNOWLEDGE.terms:
        for name in {term.name.lower(), *(alias.lower() for alias in term.aliases)}:
            assert owners.setdefault(name, term.name) == term.name, name


def test_an_entry_mentions_its_own_facts() -> None:
    for term in KNOWLEDGE.terms:
        for part in ("what", "why", "how"):
            assert mentions(getattr(term, part), term.facts[part]), (term.name, part)


def test_no_other_definition_passes_for_this_one() -> None:
    impostors = [
        (term.name, other.name)
        for term in KNOWLEDGE.terms
        for other in KNOWLEDGE.terms
        if other is not term and mentions(other.what, term.facts["what"])
    ]
    assert impostors == []


def test_written_contrasts_and_questions_mention_their_facts() -> None:
    for entry in (*KNOWLEDGE.contrasts, *KNOWLEDGE.faqs):
        assert mentions(entry.answer, entry.facts), entry


def test_no_pair_is_contrasted_twice() -> None:
    pairs = [frozenset(contrast.between) for contrast in KNOWLEDGE.all_contrasts]
    assert len(set(pairs)) == len(pairs) > 80
    assert {name for c in KNOWLEDGE.further_contrasts for name in c.between} <= set(
        KNOWLEDGE.by_name
    )
    assert all(c.answer[-1] == "." and len(c.answer) < 420 for c in KNOWLEDGE.all_contrasts)


def test_a_follow_up_belongs_to_a_known_term() -> None:
    for faq in KNOWLEDGE.faqs:
        assert faq.after in {"", "refusal", *KNOWLEDGE.by_name}, faq.id


def test_answers_are_short_and_end_like_sentences() -> None:
    for term in KNOWLEDGE.terms:
        for text in (term.what, term.why, term.how, term.example):
            assert text[-1] in ".?!'", text
            assert len(sentences(text)) <= 3, text
            assert len(text) < 420, text


def test_a_template_expands_to_every_alternative() -> None:
    assert list(expand("What [is|are] {t}[ please|]")) == [
        "What is {t} please", "What is {t}", "What are {t} please", "What are {t}",
    ]  # fmt: skip


def test_a_sample_is_one_of_the_expansions() -> None:
    import random

    template = "[Hi,|] what [is|was] {t} [again|]"
    assert {sample(template, random.Random(seed)) for seed in range(99)} == set(expand(template))


def test_tidy_and_normalise() -> None:
    assert tidy(" What  is , it ?") == "What is, it?"
    assert normalise("What IS top-k?") == "what is top k"
