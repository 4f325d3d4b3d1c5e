"""The two sides of `miner mine`: text, a folder of `miner embed`, or a folder of `miner index`, made into corpora."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from miner import languages, storage
from miner.config.commands import EmbedConfig, EncoderSettings, MineConfig, SentenceSettings, TextSettings
from miner.corpus import Corpus, is_corpus, open_corpus
from miner.encoders import load_encoder
from miner.errors import ConfigError, DataError
from miner.text import readers
from pipelines.corpus import embed
from pipelines.search import build_index


@dataclass(frozen=True)
class CorpusPair:
    """Both sides, embedded."""

    source: Corpus
    target: Corpus
    seconds: Counter[str]  # what embedding took, by stage; empty where nothing had to be embedded


def open_sides(config: MineConfig, options: Sequence[str] = ()) -> CorpusPair:
    """Embed the sides that are text under OUTPUT/source and OUTPUT/target, and open the others where they are.

    Both are looked into before anything is written. DataError where there is no sentence, or the encoders differ.
    """
    if config.source == config.target == readers.STDIN:
        raise ConfigError("source and target are both standard input; give one of them as a file")
    for code in (config.source_lang, config.target_lang):
        languages.canonical(code)  # ConfigError
    places = {"source": config.source, "target": config.target}
    sides = {side: open_folder(place) for side, place in places.items() if is_folder(place)}
    texts = {side: place for side, place in places.items() if side not in sides}
    for place in texts.values():
        check_text(place, config)
    if sides and texts:
        check_encoder(*sides.values(), config)
    seconds: Counter[str] = Counter()
    # Standard input first: whether it holds a sentence shows only then.
    for side in sorted(texts, key=lambda side: texts[side] != readers.STDIN):
        sides[side] = _embed(config, side, seconds, options)
    check_pair(sides["source"], sides["target"])
    return CorpusPair(sides["source"], sides["target"], seconds)


def is_folder(place: str) -> bool:
    """Whether a side is a folder, and not a text."""
    return place != readers.STDIN and storage.is_folder(place)


def open_folder(place: str) -> Corpus:
    """The corpus of a folder of `miner embed` or `miner index`; DataError where it is neither, or holds nothing."""
    if build_index.is_index(place):
        corpus = build_index.indexed_corpus(place)
    elif is_corpus(place):
        corpus = open_corpus(place)
    else:
        raise DataError(f"{place}: neither a text nor a finished folder of `miner embed` or `miner index`")
    if not corpus.rows:
        raise DataError(f"{place}: holds no sentences; embed a text that has some")
    return corpus


def check_text(place: str, config: TextSettings) -> None:
    """DataError for a text that is missing or without a sentence and, where the settings are strict, for one with a bad line.

    Of several files one with a sentence is enough: one that cannot be read is set aside later. Standard input can be read only
    once, so it is not looked into.
    """
    settings = config.part(TextSettings)
    uris = readers.expand([place])
    if readers.STDIN in uris:
        return
    if settings.strict:
        for uri in uris:
            for _ in readers.read_sentences(uri, settings):
                pass  # raises what is wrong with any line, while nothing is written yet
    errors = []
    for uri in uris:
        try:
            if any(block.texts for block in readers.read_sentences(uri, settings)):
                return
        except DataError as error:
            errors.append(error)
    raise errors[0] if errors else DataError(f"{place}: holds not one sentence; give a text that has some")


def check_encoder(embedded: Corpus, config: EncoderSettings) -> None:
    """DataError where the text of one side would not be embedded as the other side was."""
    encoder = load_encoder(config.encoder, config.part(EncoderSettings))
    if encoder.fingerprint != embedded.fingerprint:
        raise DataError(
            f"{embedded.folder} was embedded by {embedded.fingerprint}, and --encoder {config.encoder} is {encoder.fingerprint};"
            " give the --encoder of that folder"
        )


def _embed(config: MineConfig, side: str, seconds: Counter[str], options: Sequence[str]) -> Corpus:
    place, lang = (config.source, config.source_lang) if side == "source" else (config.target, config.target_lang)
    output = storage.join(config.output, side)
    settings = {name: value for part in (TextSettings, EncoderSettings, SentenceSettings) for name, value in config.part(part)}
    result = embed.run(EmbedConfig(inputs=(place,), output=output, lang=lang, **settings), options)
    seconds.update(result.seconds)
    return open_corpus(output)


def check_pair(source: Corpus, target: Corpus) -> None:
    """DataError where two sides are not of one encoder."""
    if source.dim != target.dim:
        raise DataError(f"{source.folder} has {source.dim} dimensions and {target.folder} has {target.dim}; embed both with one encoder")
    if source.fingerprint != target.fingerprint:
        raise DataError(
            f"{source.folder} was embedded by {source.fingerprint} and {target.folder} by {target.fingerprint}; embed both with one encoder"
        )
