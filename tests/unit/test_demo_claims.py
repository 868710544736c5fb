"""The claims that come with fsctx for trying it."""

import collections
import json
from importlib import resources

from fsctx.templates.load import load_template

CLAIMS = [
    json.loads(line)
    for line in (resources.files("fsctx.demo") / "claims.jsonl").read_text(encoding="utf-8").splitlines()
]


def test_there_are_some_hundred_claims_and_none_twice() -> None:
    assert len(CLAIMS) == 300
    assert len({claim["claim"] for claim in CLAIMS}) == len(CLAIMS)
    assert [claim["id"] for claim in CLAIMS] == list(range(1, 301))


def test_their_labels_are_those_of_the_default_template_and_balanced() -> None:
    counts = collections.Counter(claim["label"] for claim in CLAIMS)
    assert counts == dict.fromkeys(load_template("fever").label_names, 100)


def test_they_are_in_many_languages() -> None:
    languages = collections.Counter(claim["lang"] for claim in CLAIMS)
    assert len(languages) >= 20
    assert sum(languages.values()) - languages["en"] == 60


def test_no_claim_is_an_example_of_a_built_in_template() -> None:
    examples = {example.claim for example in load_template("fever-examples").examples}
    assert not examples & {claim["claim"] for claim in CLAIMS}
