"""Small real things the tests share."""

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

# The tests run side by side, a process for each core: threads within them would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # gcsfs reads it when it is imported; see object_servers.WITHOUT_GRPC

import numpy as np
import pytest
import sentencepiece

from miner.encoders import static

WORDS = ("one two three four five six seven eight nine ten", "un deux trois quatre cinq six sept huit neuf dix")
DIM = 32


@pytest.fixture(scope="session")
def toy_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static encoder whose pieces are whole words, and in which a number word has one vector in English and French.

    So "one three" and "un trois" have the same embedding, and mining them has an exact answer.
    """
    folder = tmp_path_factory.mktemp("toy-encoder")
    model = io.BytesIO()
    shuffled = random.Random(0)
    lines = [" ".join(shuffled.choices(words.split(), k=6)) for words in WORDS for _ in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=20,  # the unknown piece and 19 words: "six" is in both languages
        model_type="word",
        bos_id=-1,
        eos_id=-1,
        unk_id=0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vectors = np.zeros((pieces.get_piece_size(), DIM), dtype=np.float32)
    meanings = np.random.default_rng(0).normal(size=(10, DIM))
    for words in WORDS:
        for number, word in enumerate(words.split()):
            vectors[pieces.piece_to_id("▁" + word)] = meanings[number]
    static.save(folder, vectors, model.getvalue())
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch in one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny transformer, `model`, and pairs to train it with."""
    import tiny

    tiny.save_transformer(tmp_path / "model")
    tiny.write_pairs(tmp_path / "pairs.tsv")
    return tmp_path
