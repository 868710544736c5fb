"""Fact verification with a language model, each label scored by its log-likelihood: the paper's case, by hand.

    fsctx plan claims.jsonl --run RUN --app fact_verification.py:verify --model MODEL_FOLDER
    fsctx agent RUN

`fsctx plan --template fever` does the same faster; this is where to begin if your way of asking is another.
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LABELS = ["SUPPORTED", "REFUTED", "NOT ENOUGH INFO"]
BATCH_ROWS = 16


def load(model, device):
    """Load the model once; it stays on the device from unit to unit."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    return tokenizer, AutoModelForCausalLM.from_pretrained(model).to(device).eval()


@torch.inference_mode()
def verify(context, rows):
    """Return the likeliest label of each claim, and the log-probability of all of them."""
    return [answer(context, row["claim"]) for row in rows]


def answer(context, claim):
    prompt = f"Claim: {claim}\nIs the claim SUPPORTED, REFUTED or NOT ENOUGH INFO?\nAnswer:"
    scores = {label: score(context, prompt, " " + label) for label in LABELS}
    return {"verdict": max(scores, key=scores.get), "scores": scores}


def score(context, prompt, words):
    """Return the log-probability of some words behind a prompt."""
    tokenizer, model = context
    before = tokenizer(prompt, return_tensors="pt").input_ids
    behind = tokenizer(words, add_special_tokens=False, return_tensors="pt").input_ids
    ids = torch.cat([before, behind], dim=1).to(model.device)  # (1, tokens)
    logits = model(ids).logits[0, before.shape[1] - 1 : -1].float()  # (words, vocabulary)
    return logits.log_softmax(-1).gather(1, ids[0, before.shape[1] :, None]).sum().item()
