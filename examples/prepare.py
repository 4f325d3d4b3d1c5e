"""Build the demo corpora in this directory: `python examples/prepare.py --data DATA`.

DATA is a directory with `train/ud_pud`, `train/tico19`, `train/bible`, `train/tatoeba.*` and `eval/tatoeba`: gzip files of tab-separated
text; README.md beside this script gives their origin and licence. Standard library only; the same data and seed give the same bytes.

Every sentence belongs to one *group*: all texts of all languages that are connected by a known translation link. A group is used at
most once, either as one sentence with one translation per language or as a lone sentence without a translation. Two groups whose
English sentences share most of their words are never used together. The gold files are therefore complete up to missing links, and
every sentence has at most one translation, as one-to-one matching assumes.
"""

import argparse
import gzip
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 20240229
TARGETS = ("de", "ru", "hi")
LANGUAGES = ("en", *TARGETS)
SCRIPTS = {"en": "LATIN", "de": "LATIN", "ru": "CYRILLIC", "hi": "DEVANAGARI"}
EVAL_CODES = {"deu": "de", "rus": "ru", "hin": "hi"}  # the other evaluation files keep their three letters

TATOEBA_PAIRS = {"de": 400, "ru": 400, "hi": 420}
TATOEBA_LONE = {"en": 450, "de": 450, "ru": 450, "hi": 450}
BIBLE_LONE = {"en": 1000, "de": 1000, "ru": 1000}  # the Hindi edition is not in the public domain
PAIR_CHARACTERS = 50  # of the English side: shorter sentences have too many translations nobody linked
UNFIT = re.compile(r"\bsex|naked|breasts|fuck|\bshit|\bcondom|suicid|\brap(e|ist)|slept with", re.IGNORECASE)  # for a first impression
LONE_CHARACTERS = {"en": 50, "de": 50, "ru": 45, "hi": 35}
MAX_CHARACTERS = 240
MAX_GROUP = 40  # a larger group is held together by something like "Really?"
TOO_SIMILAR = 0.6  # Jaccard index of the words of two English readings

CONTRACTIONS = {"n't": " not", "'m": " am", "'re": " are", "'ll": " will", "'ve": " have", "'d": " would", "'s": " is"}
PEOPLE = frozenset(re.split(" ", "i you he she it we they tom mary john me him her us them my your his its our their mine yours"))

Sentence = tuple[str, str]  # language, text
UNLINKED = Path(__file__).parent / "unlinked.tsv"


@dataclass(frozen=True)
class Entry:
    """One group as the corpora show it: `texts` maps a language to its only sentence, `english` holds readings for comparison."""

    source: str
    texts: Mapping[str, str]
    english: tuple[str, ...]


class Links:
    """Translation links between sentences, and the groups they form."""

    def __init__(self) -> None:
        self.parent: dict[Sentence, Sentence] = {}
        self.neighbours: dict[Sentence, set[Sentence]] = defaultdict(set)
        self.texts: dict[Sentence, str] = {}  # key -> the first spelling seen
        self.trained: set[Sentence] = set()

    def add(self, left: Sentence, right: Sentence, trained: bool) -> None:
        """Link two sentences; `trained` marks rows that would otherwise be training data and are spent sparingly."""
        keys = []
        for language, text in (left, right):
            key = (language, letters(text))
            self.texts.setdefault(key, text)
            self.parent.setdefault(key, key)
            keys.append(key)
        self.neighbours[keys[0]].add(keys[1])
        self.neighbours[keys[1]].add(keys[0])
        if trained:
            self.trained.update(keys)
        self.parent[self.root(keys[0])] = self.root(keys[1])

    def root(self, key: Sentence) -> Sentence:
        """The representative of the group of `key`, with path halving."""
        while self.parent[key] != key:
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

    def groups(self) -> list[list[Sentence]]:
        """All groups of a usable size, in an order that depends on their content alone."""
        members: dict[Sentence, list[Sentence]] = defaultdict(list)
        for key in self.parent:
            members[self.root(key)].append(key)
        return sorted(sorted(group) for group in members.values() if len(group) <= MAX_GROUP)


class Readings:
    """The English readings taken so far, searchable for near repetitions."""

    def __init__(self) -> None:
        self.words: list[frozenset[str]] = []
        self.holders: dict[str, list[int]] = defaultdict(list)

    def accept(self, readings: Iterable[str]) -> bool:
        """Take `readings` of one group and return True, unless one of them is too similar to a reading of another group."""
        candidates = {content_words(reading) for reading in readings}
        if any(not words or self.is_near(words) for words in candidates):
            return False
        for words in candidates:
            for word in words:
                self.holders[word].append(len(self.words))
            self.words.append(words)
        return True

    def is_near(self, words: frozenset[str]) -> bool:
        """Whether the Jaccard index of `words` with any taken reading reaches TOO_SIMILAR."""
        shared = Counter(row for word in words for row in self.holders[word])
        return any(count >= TOO_SIMILAR * len(words | self.words[row]) for row, count in shared.items())


def letters(text: str) -> str:
    """The identity of a sentence: NFKC, lower case, letters, marks and digits only."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LMN")


def content_words(text: str) -> frozenset[str]:
    """The words of an English sentence without people, so that "Tom slept." and "She slept." count as the same."""
    folded = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    for short, long in CONTRACTIONS.items():
        folded = folded.replace(short, long)
    return frozenset(re.findall(r"\w+", folded)) - PEOPLE


def is_written_in(text: str, language: str) -> bool:
    """Whether more than 80 % of the letters belong to the script of `language`."""
    names = [unicodedata.name(char, "") for char in text if char.isalpha()]
    return bool(names) and sum(name.startswith(SCRIPTS[language]) for name in names) > 0.8 * len(names)


def is_usable(text: str, language: str, shortest: int) -> bool:
    """Whether a sentence is long enough, not too long and in the right script."""
    return shortest <= len(text) <= MAX_CHARACTERS and is_written_in(text, language)


def rows(path: Path) -> Iterator[list[str]]:
    """The cells of every line of a gzip TSV file; quotes mean nothing."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def read_links(data: Path) -> Links:
    """Every link of every Tatoeba file in `data`: the files of other languages connect sentences too."""
    links = Links()
    for path in sorted((data / "eval/tatoeba").glob("tatoeba.*-eng.tsv.gz")):
        code = path.name.split(".")[1].removesuffix("-eng")
        for foreign, english in rows(path):
            links.add((EVAL_CODES.get(code, code), foreign), ("en", english), trained=False)
    for number, (language, english, foreign) in enumerate(rows(data / "train/tatoeba.en-xx.tsv.gz")):
        if number:
            links.add((language, foreign), ("en", english), trained=True)
    for number, (first, second, left, right) in enumerate(rows(data / "train/tatoeba.non_english_pairs.tsv.gz")):
        if number:
            links.add((first, left), (second, right), trained=True)
    return links


def parallel_entries(folder: Path, source: str, plan: Sequence[tuple[int, Sequence[str]]], rng: random.Random) -> Iterator[Entry]:
    """Sentences of a folder that holds one `id<TAB>text` file a language; `plan` says how many ids to show in which languages."""
    shown = {language for _, languages in plan for language in languages}
    tables = {language: dict(rows(folder / f"{language}.tsv.gz")) for language in LANGUAGES if language in shown}
    common = sorted(set.intersection(*(set(table) for table in tables.values())))
    common = [name for name in common if all(is_usable(table[name], language, 30) for language, table in tables.items())]
    rng.shuffle(common)
    names = iter(common)
    for count, languages in plan:
        for _ in range(count):
            name = next(names)
            yield Entry(source, {language: tables[language][name] for language in languages}, (tables["en"][name],))


def bible_entries(folder: Path, rng: random.Random) -> Iterator[Entry]:
    """Verses that stand in one language only: other verses in each, so that nothing answers them."""
    tables = {language: dict(rows(folder / f"{language}.tsv.gz")) for language in ("en", *BIBLE_LONE)}
    shown: set[str] = set()
    for language, count in BIBLE_LONE.items():
        # English verses come from books the other languages lack, which costs the least of what could be trained on.
        open_to_it = [name for name in tables[language] if name not in shown and (language != "en" or name not in tables["de"])]
        usable = [name for name in sorted(open_to_it) if name in tables["en"] and is_usable(tables[language][name], language, 50)]
        for name in rng.sample(usable, count):
            shown.add(name)
            yield Entry("bible", {language: tables[language][name]}, (tables["en"][name],))


def linked_entry(links: Links, group: Sequence[Sentence], wanted: Counter[str]) -> dict[str, str]:
    """One English sentence of `group` and its direct translations in the languages still `wanted`; empty if there is none."""
    for key in group:
        if key[0] != "en" or not is_usable(links.texts[key], "en", PAIR_CHARACTERS):
            continue
        texts = {}
        for neighbour in sorted(links.neighbours[key], reverse=True):
            language, text = neighbour[0], links.texts[neighbour]
            if wanted[language] > 0 and is_usable(text, language, PAIR_CHARACTERS // 2):
                texts[language] = text
        if texts:
            return {"en": links.texts[key], **texts}
    return {}


def tatoeba_entries(links: Links, readings: Readings, rng: random.Random) -> list[Entry]:
    """True pairs first, then lone sentences. Groups that are no training data go first where they suffice."""
    groups = links.groups()
    rng.shuffle(groups)
    groups.sort(key=lambda group: any(key in links.trained for key in group))
    english = [tuple(links.texts[key] for key in group if key[0] == "en") for group in groups]
    used: set[int] = set()
    entries = []

    def take(row: int, texts: dict[str, str], wanted: Counter[str]) -> None:
        if texts and readings.accept(english[row]):
            used.add(row)
            wanted.subtract(texts.keys())
            entries.append(Entry("tatoeba", texts, english[row]))

    pairs = Counter(TATOEBA_PAIRS)
    for row in rng.sample(range(len(groups)), len(groups)):
        # Scarce Hindi pairs come from rows that are no training data.
        open_row = not any(key in links.trained for key in groups[row])
        wanted = Counter({language: count for language, count in pairs.items() if language != "hi" or open_row})
        take(row, linked_entry(links, groups[row], wanted) if english[row] else {}, pairs)
    lone = Counter(TATOEBA_LONE)
    for row, group in enumerate(groups):
        if row not in used and english[row]:
            take(row, lone_entry(links, group, lone), lone)
    return entries


def lone_entry(links: Links, group: Sequence[Sentence], wanted: Counter[str]) -> dict[str, str]:
    """One sentence of `group`, in the scarcest language it has that is still `wanted`; English only from rows never trained on."""
    for language in reversed(LANGUAGES):
        for key in group:
            costly = language == "en" and key in links.trained
            if key[0] == language and wanted[language] > 0 and not costly:
                text = links.texts[key]
                if is_usable(text, language, LONE_CHARACTERS[language]):
                    return {language: text}
    return {}


def collect(data: Path, rng: random.Random) -> list[Entry]:
    """All entries of all sources, no two of which say the same in English."""
    readings = Readings()
    everywhere, elsewhere = LANGUAGES, TARGETS
    parallel = [
        *parallel_entries(data / "train/ud_pud", "ud-pud", [(450, everywhere), (50, ("en",)), (50, elsewhere)], rng),
        *parallel_entries(data / "train/tico19", "tico-19", [(100, ("en", "ru", "hi")), (40, ("en",)), (60, ("ru", "hi"))], rng),
    ]
    alone = bible_entries(data / "train/bible", rng)
    entries = [entry for entry in (*parallel, *alone) if readings.accept(entry.english)]
    entries += tatoeba_entries(read_links(data), readings, rng)
    return [entry for entry in entries if not is_left_out(entry)]


def is_left_out(entry: Entry) -> bool:
    """Whether a Tatoeba entry is unfit to print, or a line of unlinked.tsv: a lone sentence found to answer another after all."""
    known = {tuple(row.split("\t")) for row in UNLINKED.read_text(encoding="utf-8").splitlines()}
    return not known.isdisjoint(entry.texts.items()) or (entry.source == "tatoeba" and any(map(UNFIT.search, entry.english)))


def write(entries: Sequence[Entry], output: Path, rng: random.Random) -> None:
    """Write the shuffled corpora, the gold files (1-based line numbers) and the origin of every line."""
    line_of: dict[str, dict[int, int]] = {}
    with open(output / "origins.tsv", "w", encoding="utf-8", newline="\n") as origins:
        for language in LANGUAGES:
            members = [number for number, entry in enumerate(entries) if language in entry.texts]
            rng.shuffle(members)
            line_of[language] = {number: line for line, number in enumerate(members, 1)}
            text = "".join(f"{entries[number].texts[language]}\n" for number in members)
            (output / f"{language}.txt").write_text(text, encoding="utf-8", newline="\n")
            origins.writelines(f"{language}.txt\t{line}\t{entries[number].source}\n" for number, line in line_of[language].items())
    for target in TARGETS:
        pairs = sorted((line, line_of[target][number]) for number, line in line_of["en"].items() if number in line_of[target])
        gold = "".join(f"{source}\t{translation}\n" for source, translation in pairs)
        (output / f"gold.en-{target}.tsv").write_text(gold, encoding="utf-8", newline="\n")
        print(f"en-{target}: {len(line_of['en'])} x {len(line_of[target])} lines, {len(pairs)} pairs")


def main() -> None:
    """Parse the command line and build the corpora."""
    parser = argparse.ArgumentParser(description="Build the demo corpora.")
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder to write to")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    write(collect(arguments.data, rng), arguments.output, rng)


if __name__ == "__main__":
    main()
