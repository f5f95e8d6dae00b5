"""Measures the tutor on held-out questions: python -m book.tutor.evaluate --help

Greedy answers of the saved bfloat16 weights, computed in float32 by the transformers library (not
by YAIE's engine, so that an error of the engine cannot hide here). Writes `evaluation.json` and,
from it, the model card.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from book.tutor.card import write_card
from book.tutor.dialogues import REFUSAL, Message
from book.tutor.glossary import load_knowledge, load_phrasings, mentions, sentences
from book.tutor.held_out import (
    Question,
    held_out_conversations,
    held_out_questions,
    held_out_sums,
    unusual_whys,
    with_system,
)
from book.tutor.unseen import judge_unseen
from book.tutor.wider import load_wider
from yaie.models.tutor import TUTOR_DIR, TUTOR_PATH
from yaie.system.files import write_whole
from yaie.system.terminal import tracked

MAX_NEW_TOKENS = 160
BATCH = 25


@dataclass(frozen=True)
class Answer:
    """A greedy answer, and whether the model ended it by itself within `MAX_NEW_TOKENS`."""

    text: str
    ended: bool


class Tutor:
    """The saved weights behind one method: greedy answers to a batch of conversations."""

    def __init__(self, weights: Path, device: str = "cpu", batch: int = BATCH) -> None:
        """batch: conversations that are answered at a time; a GPU wants hundreds."""
        self.batch = batch
        self.tokenizer = AutoTokenizer.from_pretrained(weights, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
        self.model.to(device).eval()

    @torch.inference_mode()
    def answer(
        self,
        talks: list[list[Message]],
        title: str = "answering",
        tools: list[list[dict[str, Any]]] | None = None,
    ) -> list[Answer]:
        """One answer per conversation, in order; batches hold prompts of similar length.

        tools: what each conversation offers, in OpenAI's shape.
        """
        prompts = [
            self.tokenizer.apply_chat_template(
                talk, tools=offered or None, tokenize=False, add_generation_prompt=True
            )
            for talk, offered in zip(talks, tools or [[]] * len(talks), strict=True)
        ]
        by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        answers: dict[int, Answer] = {}
        starts = range(0, len(prompts), self.batch)
        for start in tracked(starts, title, shown=sys.stderr.isatty()):
            chosen = by_length[start : start + self.batch]
            texts = [prompts[index] for index in chosen]
            answers.update(zip(chosen, self._answer_batch(texts), strict=True))
        return [answers[index] for index in range(len(prompts))]

    def _answer_batch(self, prompts: list[str]) -> list[Answer]:
        inputs = self.tokenizer(
            prompts, return_tensors="pt", padding=True, add_special_tokens=False
        ).to(self.model.device)
        output = self.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        new = output[:, inputs["input_ids"].shape[1] :]
        ended = (new == self.tokenizer.eos_token_id).any(dim=1).tolist()
        texts = self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [Answer(text, done) for text, done in zip(texts, ended, strict=True)]


def spoken(text: str) -> set[str]:
    """The sentences of an answer, without a leading "Yes:" or "No:"."""
    return set(sentences(text.removeprefix("Yes: ").removeprefix("No: ")))


@cache
def known_sentences() -> frozenset[str]:
    """Every sentence a person wrote for the tutor: an answer made of these alone is grammatical."""
    knowledge, wider = load_knowledge(), load_wider()
    texts = [REFUSAL, *(contrast.answer for contrast in knowledge.all_contrasts)]
    texts += [faq.answer.removeprefix("Yes: ").removeprefix("No: ") for faq in knowledge.faqs]
    texts += [claim.text for claim in wider.claims]
    texts += [entry.answer.removeprefix("No: ") for entry in wider.situations]
    texts += [side for sides in wider.facets.values() for side in sides.values()]
    parts = frozenset(sentence for text in texts for sentence in sentences(text))
    return parts.union(*(term.sentences for term in knowledge.terms))


def is_right(question: Question, answer: str) -> bool:
    """Whether the answer mentions all facts and recites no glossary entry but the one asked for."""
    if not question.term:
        return mentions(answer, question.facts)
    own = set(load_knowledge().by_name[question.term].sentences)
    own |= load_wider().said_of(question.term)
    foreign = (known_sentences() - own) & spoken(answer)
    return mentions(answer, question.facts) and not foreign


def _messages(question: Question) -> list[Message]:
    user = {"role": "user", "content": question.text}
    return [{"role": "system", "content": question.system}, user] if question.system else [user]


def _share(flags: list[bool]) -> float:
    return round(sum(flags) / len(flags), 4)


def judge_questions(tutor: Tutor, questions: list[Question], title: str) -> dict[str, Any]:
    """Shares of answers that hold the facts, end, are refused, and consist of known sentences."""
    answers = tutor.answer([_messages(question) for question in questions], title)
    known = known_sentences()
    right = [is_right(q, a.text) for q, a in zip(questions, answers, strict=True)]
    return {
        "questions": len(questions),
        "right": _share(right),
        "ended": _share([answer.ended for answer in answers]),
        "refused": _share([answer.text == REFUSAL for answer in answers]),
        "known_sentences": _share([spoken(answer.text) <= known for answer in answers]),
        "wrong": [
            {"question": q.text, "answer": a.text, "facts": list(q.facts)}
            for q, a, ok in zip(questions, answers, right, strict=True)
            if not ok
        ],
    }


def judge_refusals(tutor: Tutor) -> dict[str, Any]:
    """Off-subject prompts must be refused, on-subject ones in everyday words must not."""
    off: list[str] = load_phrasings("held_out")["off_subject"]["prompts"]
    on: list[str] = load_phrasings("held_out")["on_subject"]["prompts"]
    answers = tutor.answer([[{"role": "user", "content": p}] for p in off + on], "refusing")
    refused = [answer.text == REFUSAL for answer in answers]
    return {
        "off_subject": len(off),
        "off_subject_refused": _share(refused[: len(off)]),
        "on_subject": len(on),
        "on_subject_refused": _share(refused[len(off) :]),
        "wrong": [
            {"question": prompt, "answer": answer.text}
            for index, (prompt, answer) in enumerate(zip(off + on, answers, strict=True))
            if refused[index] != (index < len(off))
        ],
        "on_subject_answers": {p: a.text for p, a in zip(on, answers[len(off) :], strict=True)},
    }


def judge_unknown(tutor: Tutor, most: int = 0) -> dict[str, Any]:
    """Prompts about things that no training prompt mentions must be refused, too.

    most: prompts that are asked; 0: all.
    """
    written: list[str] = load_phrasings("held_out")["off_subject_unknown"]["prompts"]
    prompts = written[: most or None]
    answers = tutor.answer([[{"role": "user", "content": p}] for p in prompts], "unknown things")
    return {
        "prompts": len(prompts),
        "refused": _share([answer.text == REFUSAL for answer in answers]),
        "wrong": [
            {"question": prompt, "answer": answer.text}
            for prompt, answer in zip(prompts, answers, strict=True)
            if answer.text != REFUSAL
        ],
    }


def judge_conversations(tutor: Tutor) -> dict[str, Any]:
    """Whole conversations, each turn answered after the tutor's own earlier answers."""
    conversations = held_out_conversations()
    talks: list[list[Message]] = [[] for _ in conversations]
    for turn in range(max(len(conversation.turns) for conversation in conversations)):
        going = [
            i for i, conversation in enumerate(conversations) if turn < len(conversation.turns)
        ]
        for index in going:
            talks[index].append({"role": "user", "content": conversations[index].turns[turn]})
        for index, answer in zip(
            going, tutor.answer([talks[i] for i in going], "talking"), strict=True
        ):
            talks[index].append({"role": "assistant", "content": answer.text})
    right = [
        mentions(talk[-1]["content"], conversation.facts)
        for talk, conversation in zip(talks, conversations, strict=True)
    ]
    return {"conversations": len(talks), "right": _share(right), "talks": talks}


def evaluate(tutor: Tutor) -> dict[str, Any]:
    """All figures, with every wrong answer beside them."""
    questions = held_out_questions()
    return {
        "held_out": judge_questions(tutor, questions, "held-out questions"),
        "with_system_prompt": judge_questions(tutor, with_system(questions[::4]), "system prompts"),
        "sums": judge_questions(tutor, held_out_sums(), "sums"),
        "unusual_whys": judge_questions(tutor, unusual_whys(), "unusual whys"),
        "refusals": judge_refusals(tutor),
        "unknown_things": judge_unknown(tutor),
        "unseen": judge_unseen(tutor),
        "conversations": judge_conversations(tutor),
    }


def main() -> None:
    """Evaluate, print the figures, write `evaluation.json` and the card."""
    parser = argparse.ArgumentParser(description="Evaluate the YAIE tutor on held-out questions.")
    parser.add_argument("--weights", type=Path, default=TUTOR_PATH, help="folder of the weights")
    parser.add_argument(
        "--out", type=Path, help="file; evaluation.json beside the weights, of the tutor above them"
    )
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    is_tutor = args.weights.resolve() == TUTOR_PATH.resolve()
    out: Path = args.out or (TUTOR_DIR if is_tutor else args.weights) / "evaluation.json"
    result = evaluate(Tutor(args.weights, args.device))
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_whole(out, text)
    write_card(args.weights, result)
    for name, figures in result.items():
        for wrong in figures.get("wrong", []):
            print(f"{name}: {wrong['question']}\n    {wrong['answer']}")
    for name, figures in result.items():
        plain = {key: value for key, value in figures.items() if isinstance(value, int | float)}
        print(name, plain)


if __name__ == "__main__":
    main()
