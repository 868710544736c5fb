"""Free text from a language model: here a rewording of each claim.

fsctx plan claims.jsonl --run RUN --app free_generation.py:reword --model MODEL_FOLDER
fsctx agent RUN
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH_ROWS = 16
MAX_NEW_TOKENS = 40


def load(model, device):
    """Load the model once; prompts of a batch are padded on their left, where nothing is generated."""
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer, AutoModelForCausalLM.from_pretrained(model).to(device).eval()


@torch.inference_mode()
def reword(context, rows):
    """Return one text for each row."""
    tokenizer, model = context
    prompts = [f"Sentence: {row['claim']}\nThe same in other words:" for row in rows]
    asked = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    written = model.generate(
        input_ids=asked.input_ids,
        attention_mask=asked.attention_mask,
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    answers = written[:, asked.input_ids.shape[1] :]  # (rows, new tokens)
    return [text.strip() for text in tokenizer.batch_decode(answers, skip_special_tokens=True)]
