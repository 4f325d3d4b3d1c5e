"""The two sides of `miner mine`: text, an embeddings directory, or an index directory, opened as corpora."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from miner import languages
from miner.config.choices import AUTO
from miner.config.commands import EmbedConfig, EncoderSettings, MineConfig, TextSettings
from miner.encoders import choose_side, with_recorded_dtype
from miner.errors import ConfigError, DataError
from miner.io import stages, storage
from miner.io.corpus import Corpus, is_corpus, open_corpus
from miner.text import readers
from pipelines.beam.runner import Pipeline, together
from pipelines.corpus import embed, ingest
from pipelines.mining import calibrate
from pipelines.search import build_index

logger = logging.getLogger(__name__)

Side = Literal["source", "target"]


@dataclass(frozen=True)
class CorpusPair:
    """Both sides, embedded."""

    source: Corpus
    target: Corpus
    seconds: Mapping[str, float]  # seconds of embedding by stage; empty if nothing had to be embedded


def open_sides(config: MineConfig, options: Sequence[str] = ()) -> Pipeline[CorpusPair]:
    """Embed the sides that are text under OUTPUT/source and OUTPUT/target, and open the others.

    Both are checked before anything is written. DataError if a side has no sentence, or the encoders differ.
    """
    if config.source == config.target == readers.STDIN and not config.paraphrases:
        raise ConfigError("source and target are both standard input; give one of them as a file")
    for code in (config.source_lang, config.target_lang):
        languages.canonical(code)  # ConfigError
    paths: dict[Side, str] = {"source": config.source}
    if not config.paraphrases:
        paths["target"] = config.target
    corpora = {side: open_folder(path) for side, path in paths.items() if is_folder(path)}
    for side, corpus in corpora.items():
        _check_lang(corpus, _lang(config, side), side)
    outputs = [storage.join(config.output, side) for side in paths]
    recorded = [*(corpus.fingerprint for corpus in corpora.values()), *map(embed.recorded_fingerprint, outputs)]
    config = with_recorded_dtype(config, recorded)
    texts = {side: path for side, path in paths.items() if side not in corpora}
    for side, path in texts.items():
        ingest.check_extras(_embed_config(config, side))
        check_text(path, config.side_text(side, path), languages.canonical(_lang(config, side)) if config.split else None)
    if texts:
        for corpus in corpora.values():
            check_encoder(corpus, config, options)
    configs: dict[Side, EmbedConfig] = {side: _embed_config(config, side) for side in texts}
    if config.calibrate == AUTO:
        calibrate.run_before_first_use(list(configs.values()), options)
    # Standard input comes first, alone: whether it has a sentence is known only when it is read.
    order = sorted(texts, key=lambda side: texts[side] != readers.STDIN)
    at_once = 1 if readers.STDIN in texts.values() else None
    embedded, _ = yield from together({side: embed.pipeline(configs[side], options) for side in order}, at_once)
    for side in order:
        corpora[side] = open_corpus(embedded[side].output)
    parts = [embedded[side].seconds for side in order]
    combine = sum if at_once == 1 else max  # sides that share jobs both count the seconds of these
    seconds = {stage: combine(part[stage] for part in parts) for stage in (parts[0] if parts else ())}
    source, target = corpora["source"], corpora.get("target", corpora["source"])
    check_pair(source, target)
    if source.key == target.key and not config.paraphrases:
        logger.warning("source and target have the same sentences, each of which is paired with itself; give --paraphrases for others")
    return CorpusPair(source, target, seconds)


def _check_lang(corpus: Corpus, code: str, side: Side) -> None:
    """Raise ConfigError for a language that is not the one by which a corpus was cleaned and filtered."""
    lang = languages.canonical(code)
    if languages.UNDETERMINED not in (lang, corpus.lang) and lang != corpus.lang:
        raise ConfigError(f"--{side}-lang {code}: {corpus.folder} was embedded as {corpus.lang}; remove the option, or embed it again")


def is_folder(path: str) -> bool:
    """Return whether a side is a folder, not a text."""
    return path != readers.STDIN and storage.is_folder(path)


def open_folder(path: str) -> Corpus:
    """Open the corpus of an embeddings or index directory. DataError if it is neither, or empty."""
    if build_index.is_index(path):
        corpus = build_index.indexed_corpus(path)
    elif is_corpus(path):
        corpus = open_corpus(path)
    else:
        writer = stages.writer_of(path)
        remedy = f"run `miner {writer}` again" if writer in (stages.EMBED, stages.INDEX) else "give such a directory, or a text file"
        raise DataError(f"{path}: not a finished output of `miner embed` or `miner index`; {remedy}")
    if not corpus.rows:
        raise DataError(f"{path}: has no sentences; embed a text that has some")
    return corpus


def check_text(path: str, config: TextSettings, split_lang: str | None = None) -> None:
    """Raise DataError for a text that is missing or without a sentence; with `strict`, also for one with a bad line.

    Of several files, one with a sentence is enough: an unreadable one is skipped later. Standard input can be read only once, so it is
    not checked.
    """
    uris = readers.expand([path])
    if readers.STDIN in uris:
        return
    if config.strict:
        for uri in uris:
            for _ in readers.read_sentences(uri, config, split_lang=split_lang):
                pass  # raises for a bad line, before anything is written
    errors = []
    for uri in uris:
        try:
            if any(block.texts for block in readers.read_sentences(uri, config, split_lang=split_lang)):
                return
        except DataError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise DataError(f"{path}: no sentence in the text; give a text with sentences; --strict names the first problem")


def check_encoder(embedded: Corpus, config: EncoderSettings, options: Sequence[str] = ()) -> None:
    """Raise DataError if the text of one side would be embedded by another encoder than the other side was."""
    encoder = embed.identify_encoder(with_recorded_dtype(config, [embedded.fingerprint]), options)
    if encoder.fingerprint != embedded.fingerprint:
        raise DataError(
            f"{embedded.folder} was embedded by {embedded.fingerprint}, and --encoder {config.encoder} is {encoder.fingerprint};"
            " give the --encoder that embedded it"
        )


def _lang(config: MineConfig, side: Side) -> str:
    return config.source_lang if side == "source" else config.target_lang


def _embed_config(config: MineConfig, side: Side) -> EmbedConfig:
    text, lang = config.source if side == "source" else config.target, _lang(config, side)
    settings = {**config.shared(EmbedConfig), **dict(config.side_text(side, text)), **dict(choose_side(config, lang, default=side))}
    return EmbedConfig(**{**settings, "inputs": (text,), "output": storage.join(config.output, side), "lang": lang})


def check_pair(source: Corpus, target: Corpus) -> None:
    """Raise DataError if two sides were embedded by different encoders."""
    if source.dim != target.dim:
        raise DataError(f"{source.folder} has {source.dim} dimensions and {target.folder} has {target.dim}; embed both with one encoder")
    if source.fingerprint != target.fingerprint:
        raise DataError(
            f"{source.folder} was embedded by {source.fingerprint} and {target.folder} by {target.fingerprint}; embed both with one encoder"
        )
