"""Training of static encoders: language smoothing, blocks of pairs, spelling vectors, and training runs."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command import error_of, miner, output_of
from safetensors.torch import load_file
from tiny import sentence, write_tsv

from miner.encoders import Encoder, load_encoder
from miner.training.data.datasets import open_dataset, read_source
from miner.training.data.groups import GroupedPairsSettings, GroupedPairsStrategy
from miner.training.data.sampling import smooth_shares
from miner.training.models import static as training_static
from miner.training.models.spelling import SparseProduct, build_spelling_matrix, spelling_ngrams

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models train faster without thread synchronisation


def numbers(rows: int, seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 10, size=(rows, 5)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """1,500 groups: five digits spelled out in English, and in German, Russian or both."""
    rows = []
    for group, digits in enumerate(numbers(1500, seed=1)):
        langs = ["eng_Latn"] + [lang for index, lang in enumerate(("deu_Latn", "rus_Cyrl")) if group % 3 != index]
        rows += [{"group": group, "lang": lang, "text": sentence(lang, digits)} for lang in langs]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "groups.parquet")
    return tmp_path / "groups.parquet"


def test_smooth_shares_by_hand() -> None:
    np.testing.assert_allclose(smooth_shares(np.array([900, 0, 100]), 0.5), [0.75, 0, 0.25])
    np.testing.assert_allclose(smooth_shares(np.array([900, 0, 100]), 0.0), [0.5, 0, 0.5])


COLUMNS = {"group": "group", "lang": "lang", "text": "text"}


def grouped_pairs(path: Path, folder: Path, **settings: object) -> GroupedPairsStrategy:
    source = GroupedPairsSettings(strategy="grouped_pairs", files=(str(path),), columns=COLUMNS, **settings)
    read_source(source, folder)
    return GroupedPairsStrategy(open_dataset(source, folder), source, 0, None)


def test_blocks_have_anchors_of_one_language_and_positives_of_another(data: Path, tmp_path: Path) -> None:
    strategy = grouped_pairs(data, tmp_path / "work", language_smoothing=0.5, pivot_share=0.5, block_size=200)
    groups, english = strategy, strategy.languages.index("eng_Latn")
    random = np.random.default_rng(0)
    batches = [strategy.draw(800, random) for _ in range(13)]
    anchors, positives = (np.concatenate([batch.views[view].rows for batch in batches]) for view in ("anchor", "positive"))
    for batch in batches:
        bounds = np.cumsum((0, *batch.blocks))
        assert bounds[-1] == len(batch)
        for start, end in pairwise(bounds):
            assert len(set(groups.lang[batch.views["anchor"].rows[start:end]])) == 1
    np.testing.assert_array_equal(groups.group[anchors], groups.group[positives])
    assert (groups.lang[anchors] != groups.lang[positives]).all()
    assert set(anchors) == set(np.flatnonzero(groups.lang != english))
    assert 0.7 < np.mean(groups.lang[positives] == english) < 0.95


def test_groups_without_the_pivot_language_are_used(tmp_path: Path) -> None:
    pq.write_table(pa.table({"group": [0, 0], "lang": ["fra_Latn", "deu_Latn"], "text": ["un", "eins"]}), tmp_path / "groups.parquet")
    batch = grouped_pairs(tmp_path / "groups.parquet", tmp_path / "work", pivot_share=1).draw(64, np.random.default_rng(3))
    assert 0 < len(batch) < 64  # a text drawn as its own positive is dropped
    assert (batch.views["anchor"].rows != batch.views["positive"].rows).all()


def test_similar_spellings_share_ngrams_across_scripts() -> None:
    assert spelling_ngrams("▁Путин") == spelling_ngrams("▁putin")
    assert not spelling_ngrams("▁one") & spelling_ngrams("▁zwei")
    assert "~ ab" in spelling_ngrams("▁ab") & spelling_ngrams("ab")


def test_sparse_product_and_gradient_equal_the_dense_ones() -> None:
    without_collisions = build_spelling_matrix(["▁one", "▁once", "два"], 1 << 20)  # so each row has unit length
    torch.testing.assert_close(torch.sparse.sum(without_collisions * without_collisions, dim=1).to_dense(), torch.ones(3))
    matrix = build_spelling_matrix(["▁one", "▁once", "два"], 64)
    table = torch.randn(64, 5, requires_grad=True)
    weights = torch.randn(3, 5)
    product = SparseProduct.apply(table, matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr())
    torch.testing.assert_close(product, matrix.to_dense() @ table)
    (product * weights).sum().backward()
    torch.testing.assert_close(table.grad, matrix.to_dense().T @ weights)


CONFIG = """
encoder: {{kind: static, dim: 32, spelling_buckets: 512, vocabulary: {{size: 60, sentences: 2000}}}}
data: [{{strategy: grouped_pairs, files: [{data}], columns: {{group: group, lang: lang, text: text}}, block_size: 128}}]
objective: [{{loss: info_nce, two_way: true}}]
training: {{steps: 60, batch_size: 256, lr: 0.02, warmup: 5, floor: 0.02}}
"""


def train(config: str, output: Path) -> Encoder:
    path = output.with_suffix(".yaml")
    path.write_text(config)
    output_of("train", path, "--output", output)
    return load_encoder(str(output / "encoder"))


def retrieval_accuracy(encoder: Encoder, rows: list[np.ndarray], langs: tuple[str, str] = ("deu_Latn", "rus_Cyrl")) -> float:
    source, target = (encoder.encode([sentence(lang, digits) for digits in rows]) for lang in langs)
    return float(((source @ target.T).argmax(axis=1) == np.arange(len(rows))).mean())


def test_training_learns_to_translate(data: Path, tmp_path: Path) -> None:
    encoder = train(CONFIG.format(data=data), tmp_path / "out")
    unseen = {tuple(sorted(digits)): digits for digits in numbers(400, seed=2)}.values()  # distinct as bags of words
    assert retrieval_accuracy(encoder, list(unseen)) > 0.95


def test_training_is_deterministic(data: Path, tmp_path: Path) -> None:
    config = CONFIG.format(data=data).replace("steps: 60", "steps: 5")
    assert train(config, tmp_path / "a").fingerprint == train(config, tmp_path / "b").fingerprint


def test_training_continues_from_a_static_encoder(data: Path, tmp_path: Path) -> None:
    first = CONFIG.format(data=data).replace("steps: 60", "steps: 10")
    continued = first.replace("dim: 32", f"model: {tmp_path / 'first' / 'encoder'}").replace(
        ", vocabulary: {size: 60, sentences: 2000}", ""
    )
    encoders = {
        "first": train(first, tmp_path / "first"),
        "unchanged": train(continued.replace("lr: 0.02", "lr: 1.0e-9"), tmp_path / "unchanged"),
        "continued": train(continued, tmp_path / "continued"),
    }
    unseen = list({tuple(sorted(digits)): digits for digits in numbers(400, seed=2)}.values())
    texts = [sentence("deu_Latn", digits) for digits in unseen]
    before, after = (encoders[name].encode(texts) for name in ("first", "unchanged"))
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=5e-3)  # saved with another rotation, and rounded
    assert retrieval_accuracy(encoders["continued"], unseen) > retrieval_accuracy(encoders["first"], unseen) + 0.05


def test_a_static_encoder_learns_by_momentum_contrast(data: Path, tmp_path: Path) -> None:
    rows = [[sentence(lang, digits) for lang in ("eng_Latn", "deu_Latn")] for digits in numbers(600, seed=1)]
    pairs = write_tsv(tmp_path / "pairs.tsv", ["en", "de"], rows)
    source = f"data: [{{{{strategy: parallel, files: [{pairs}], columns: {{{{source: en, target: de}}}}}}}}]\n"
    lines = [source if line.startswith("data:") else f"{line}\n" for line in CONFIG.splitlines()]
    changed = "".join(lines).replace("info_nce, two_way: true", "momentum, momentum: 0.9, queue: 512").replace("size: 60", "size: 40")
    encoder = train(changed.format(data=data), tmp_path / "out")
    unseen = list({tuple(sorted(digits)): digits for digits in numbers(200, seed=2)}.values())
    assert retrieval_accuracy(encoder, unseen, ("eng_Latn", "deu_Latn")) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("size: 60", "size: 9000"), "encoder.vocabulary.size 9000: the texts have only 71 pieces; lower it"),
        (("dim: 32", "dims: 32"), "unknown setting 'encoder.dims'"),
        (("dim: 32", "dim: 0"), "expected at least 1"),
        (("dim: 32", "dim: 32, model: builtin"), "remove dim, initial and vocabulary"),
        (("dim: 32, spelling_buckets: 512, vocabulary: {size: 60, sentences: 2000}", "model: ./none"), "./none: no such encoder folder"),
        (("groups.parquet", "nothing.parquet"), "no such file"),
        (("lr: 0.02", "lr: 1.0e+38"), "lower training.lr"),
    ],
)
def test_invalid_configs_are_reported_in_one_line(data: Path, tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format(data=data).replace(*change))
    result = miner("train", tmp_path / "config.yaml", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (tmp_path / "out" / "encoder").exists()


@pytest.mark.parametrize(
    ("group", "langs", "message"),
    [
        ([0, 1], ["eng_Latn", "deu_Latn"], "no group has two texts"),
        ([0, 0], ["eng_Latn", "eng_Latn"], "no group has texts in two languages"),
        ([0, 0], ["deu_Latn", "deu_Latn"], "no group has texts in two languages"),
    ],
)
def test_data_without_pairs_is_rejected(tmp_path: Path, group: list[int], langs: list[str], message: str) -> None:
    pq.write_table(pa.table({"group": group, "lang": langs, "text": ["one", "zwei"]}), tmp_path / "groups.parquet")
    (tmp_path / "config.yaml").write_text(CONFIG.format(data=tmp_path / "groups.parquet"))
    assert message in error_of("train", tmp_path / "config.yaml", "--output", tmp_path / "out")


def test_pieces_of_a_killed_run_are_not_reused_with_other_settings(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed before its first checkpoint may be started again with another vocabulary."""
    config = CONFIG.format(data=data).replace("steps: 60", "steps: 1")
    (tmp_path / "config.yaml").write_text(config)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", interrupt)
        assert miner("train", tmp_path / "config.yaml", "--output", tmp_path / "out").exit_code == 130
    assert list((tmp_path / "out").rglob("*.model"))
    (tmp_path / "config.yaml").write_text(config.replace("size: 60", "size: 50"))
    assert miner("train", tmp_path / "config.yaml", "--output", tmp_path / "out").exit_code == 0
    vectors = load_file(tmp_path / "out" / "encoder" / "vectors.safetensors")
    assert [len(table) for table in vectors.values()] == [50, 50]  # rows and their scales


def test_rotation_keeps_products_and_sorts_dimensions() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32) * np.linspace(0.1, 2, 16, dtype=np.float32)
    vectors[7] = 0
    rotated = training_static.rotate_to_principal_axes(vectors)
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, atol=1e-4)
    units = rotated / np.maximum(np.linalg.norm(rotated, axis=1, keepdims=True), 1e-9)
    energies = (units.astype(np.float64) ** 2).sum(axis=0)
    assert (np.diff(energies) < 0).all()
    # The largest eigenvalue of the products of the unit vectors, which no rotation puts more into one dimension than.
    assert energies[0] == pytest.approx(np.linalg.eigvalsh((units @ units.T).astype(np.float64))[-1], rel=1e-5)


def test_late_interaction_compares_the_first_dimensions_of_a_trained_encoder(data: Path, tmp_path: Path) -> None:
    config = CONFIG.format(data=data).replace("steps: 60", "steps: 2")
    small = train(config, tmp_path / "small")
    large = train(config.replace("dim: 32", "dim: 160"), tmp_path / "large")
    assert small.token_vectors(["one two"]).table.shape[1] == 32
    assert large.token_vectors(["one two"]).table.shape[1] == training_static.TOKEN_DIM == 128


def test_a_new_vocabulary_starts_from_the_vectors_of_an_encoder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of both vocabularies starts with its vector, another one with the sum of its pieces; the added dimensions are short."""
    monkeypatch.setattr(training_static, "rotate_to_principal_axes", lambda vectors: vectors)
    first = train(CONFIG.format(data=data).replace("steps: 60", "steps: 10"), tmp_path / "first")
    settings = f"dim: 40, initial: {tmp_path / 'first' / 'encoder'}, spelling_buckets: 512, vocabulary: {{size: 50, sentences: 2000}}"
    config = CONFIG.format(data=data).replace("dim: 32, spelling_buckets: 512, vocabulary: {size: 60, sentences: 2000}", settings)
    second = train(config.replace("steps: 60", "steps: 1").replace("lr: 0.02", "lr: 1.0e-9"), tmp_path / "second")
    for piece in range(1, second.pieces.get_piece_size()):
        name = second.pieces.id_to_piece(piece)
        same = first.pieces.piece_to_id(name)
        parts = [same] if same != first.pieces.unk_id() else first.pieces.encode(name.replace("\u2581", " "))
        expected = first.vectors[parts].sum(axis=0)
        np.testing.assert_allclose(second.vectors[piece, :32], expected, atol=4e-3)
        assert 0 < np.linalg.norm(second.vectors[piece, 32:]) < 0.8 * np.linalg.norm(expected)


def test_pieces_with_rate_0_keep_their_vectors(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_static, "rotate_to_principal_axes", lambda vectors: vectors)
    first = train(CONFIG.format(data=data).replace("steps: 60", "steps: 5"), tmp_path / "first")
    rates = np.full(len(first.vectors), 0.5)
    rates[10:30] = 0
    np.save(tmp_path / "rates.npy", rates)
    settings = f"model: {tmp_path / 'first' / 'encoder'}, rates: {tmp_path / 'rates.npy'}, eight_bit_dims: 12, spelling_buckets: 512"
    config = CONFIG.format(data=data).replace("dim: 32, spelling_buckets: 512, vocabulary: {size: 60, sentences: 2000}", settings)
    second = train(config.replace("steps: 60", "steps: 5"), tmp_path / "second")
    np.testing.assert_allclose(second.vectors[10:30, :12], first.vectors[10:30, :12], atol=6e-3)  # rounded again
    assert second.stored["halves"].shape == (len(first.vectors), 10)
    assert np.abs(second.vectors[30:, :12] - first.vectors[30:, :12]).max() > 0.05
    np.save(tmp_path / "rates.npy", rates[1:])
    (tmp_path / "config.yaml").write_text(config)
    assert "rates of shape" in error_of("train", tmp_path / "config.yaml", "--output", tmp_path / "out")
    (tmp_path / "rates.npy").write_bytes(b"\x93NUMPY")
    assert "rates.npy: not a .npy file" in error_of("train", tmp_path / "config.yaml", "--output", tmp_path / "out")


def test_initial_vectors_with_more_dimensions_are_refused(data: Path, tmp_path: Path) -> None:
    first = CONFIG.format(data=data).replace("steps: 60", "steps: 1")
    train(first, tmp_path / "first")
    (tmp_path / "config.yaml").write_text(first.replace("dim: 32", f"dim: 16, initial: {tmp_path / 'first' / 'encoder'}"))
    message = error_of("train", tmp_path / "config.yaml", "--output", tmp_path / "out")
    assert message.endswith("encoder: 32 dimensions, but encoder.dim is 16; set it to 32 or more")
