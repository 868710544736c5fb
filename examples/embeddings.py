"""Sentence embeddings with a small encoder, as a column of vectors.

fsctx plan claims.jsonl --run RUN --app embeddings.py:embed --model ENCODER_FOLDER
fsctx agent RUN
fsctx collect RUN -o vectors.parquet        # column output_embedding
"""

import torch
from transformers import AutoModel, AutoTokenizer

OUTPUT = {"embedding": list[float], "words": int}
BATCH_ROWS = 64


def load(model, device):
    """Load the encoder once."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer, AutoModel.from_pretrained(model).to(device).eval()


@torch.inference_mode()
def embed(context, rows):
    """Return the mean of each claim's last hidden states, of length one."""
    tokenizer, encoder = context
    claims = [row["claim"] for row in rows]
    tokens = tokenizer(claims, return_tensors="pt", padding=True, truncation=True, max_length=256).to(encoder.device)
    hidden = encoder(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).last_hidden_state
    mask = tokens.attention_mask[:, :, None]  # (rows, tokens, 1)
    means = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    vectors = torch.nn.functional.normalize(means.float(), dim=1).cpu()
    return [{"embedding": vector, "words": len(claim.split())} for vector, claim in zip(vectors, claims, strict=True)]
