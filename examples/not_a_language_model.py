"""A context that is no language model: a database of documents, searched for what a claim says.

    fsctx plan claims.jsonl --run RUN --app not_a_language_model.py:find --model documents.sqlite
    fsctx agent RUN

The database has a table `documents (title TEXT, body TEXT)`. It travels through the nodes' caches like a model.
"""

import re
import sqlite3
from collections import Counter

OUTPUT = {"title": str, "shared_words": int, "is_certain": bool}


def load(model):
    """Index the words of all documents; that is what is worth keeping between units."""
    database = sqlite3.connect(f"file:{model}?mode=ro", uri=True)
    index = {}
    for title, body in database.execute("SELECT title, body FROM documents"):
        for word in words(title + " " + body):
            index.setdefault(word, set()).add(title)
    return index


def find(index, rows):
    """Return the document that shares most words with each claim."""
    for row in rows:
        shared = Counter(title for word in words(row["claim"]) for title in index.get(word, ()))
        best = shared.most_common(2)
        if not best:
            yield {"error": "no document shares a word with this claim"}
            continue
        title, n_shared = min(best, key=lambda found: (-found[1], found[0]))
        yield {"title": title, "shared_words": n_shared, "is_certain": len(best) == 1 or n_shared > best[1][1]}


def words(text):
    return set(re.findall(r"\w{4,}", text.lower()))
