#!/usr/bin/env bash
# `cascadia tokenize` and `detokenize` as scripts use them, on a vocabulary of a few letters.
set -euo pipefail
cascadia=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "failed: $*" >&2
    exit 1
}

# same WHAT EXPECTED HAVE
same() {
    [ "$2" = "$3" ] || fail "$1: \"$3\" instead of \"$2\""
}

cat >"$work/tokenizer.json" <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ċ": 4, "Ã": 5, "©": 6, "<": 7, ">": 8},
           "merges": ["a b"]},
 "added_tokens": [{"id": 9, "content": "<a>", "special": true, "normalized": false}],
 "post_processor": {"type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "<a>"}}, {"Sequence": {"id": "A"}}],
                    "special_tokens": {"<a>": {"ids": [9]}}},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
 "decoder": {"type": "ByteLevel"}}
JSON
printf 'ab é\n<a>' >"$work/text"

for model in "$work" "$work/tokenizer.json"; do
    same "ids" "[9, 2, 3, 5, 6, 4, 9]" "$("$cascadia" tokenize "$model" --file "$work/text")"
    same "nothing around" "[2, 3, 5, 6, 4, 9]" "$("$cascadia" tokenize "$model" --file "$work/text" --no-special)"
    same "a user's text" "[2, 3, 5, 6, 4, 7, 0, 8]" "$("$cascadia" tokenize "$model" --no-special --plain <"$work/text")"
done
same "no text" "[]" "$("$cascadia" tokenize "$work" --no-special </dev/null)"

"$cascadia" tokenize "$work" --no-special <"$work/text" >"$work/ids"
"$cascadia" detokenize "$work" <"$work/ids" >"$work/back"
cmp "$work/text" "$work/back" || fail "detokenize is not the reverse"
same "without special tokens" "ab" "$(echo '[9, 2, 9]' | "$cascadia" detokenize "$work" --no-special)"
same "a character that is cut" $'\xef\xbf\xbd' "$(echo '[5]' | "$cascadia" detokenize "$work")"

# expect STATUS WORDS COMMAND...: the exit status, and words on standard error; nothing on the other
expect() {
    local status=$1 words=$2 got=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ "$got" = "$status" ] || fail "$* ended with $got instead of $status: $(cat "$work/err")"
    grep -qF -- "$words" "$work/err" || fail "$* did not say \"$words\": $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$* wrote to standard output"
}
echo '[2, 10]' >"$work/high"
echo '{"a": 1}' >"$work/object"
expect 2 "item 1" "$cascadia" detokenize "$work" --file "$work/high"
expect 1 "no JSON array" "$cascadia" detokenize "$work" --file "$work/object"
expect 1 "nowhere" "$cascadia" tokenize "$work/nowhere"
expect 2 "missing" "$cascadia" tokenize
expect 1 "not valid JSON" "$cascadia" tokenize "$work/text"
