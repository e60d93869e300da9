#!/usr/bin/env bash
# What the benchmarks print and refuse. How fast anything is, no test can say: rounds are few, and
# only form and plausibility are looked at. A build with sanitizers must refuse to measure.
set -u
program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
model=$root/tests/golden/llama
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        cat "$work/out" "$work/err"
        failed=1
    fi
}

ends() { # STATUS WORDS...
    local status=$1 got
    shift
    timeout 200 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [[ $got == "$status" ]] || { echo "status $got"; return 1; }
}

refused() { # SENTENCE STATUS WORDS...
    local sentence=$1
    shift
    ends "$@" && grep -q -- "$sentence" "$work/err" && [[ ! -s $work/out ]]
}

json() { # EXPRESSION WORDS...: the output as d makes the expression true
    local expression=$1
    shift
    ends 0 "$@" && python3 -c "import json, sys; d = json.load(open('$work/out')); sys.exit(0 if ($expression) else 1)"
}

lines() { # EXPRESSION WORDS...: the lines of output as list d
    local expression=$1
    shift
    ends 0 "$@" && python3 -c "import json, sys; d = [json.loads(x) for x in open('$work/out')]; sys.exit(0 if ($expression) else 1)"
}

check "a list that is none" refused "with commas" 2 bench model "$model" --depth 1,x
check "a list that is too long" refused "at most 8 numbers" 2 bench model "$model" --batch 1,2,3,4,5,6,7,8,9
check "rounds of several depths" refused "one --depth" 2 bench model "$model" --decode 4 --depth 0,8
check "a model that is not named" refused "MODEL is missing" 2 bench model

if grep -qaE '__(asan|tsan)_init' "$program"; then
    for words in "machine" "kernels" "model $model" "$model"; do
        # shellcheck disable=SC2086
        check "bench $words refuses sanitizers" refused "this build has sanitizers" 1 bench $words
    done
    exit $failed
fi

check "machine" json "d['machine']['threads'] >= 1 and 0 <= d['noise']['lost_before'] <= 1 and
    {'clock'} < {c['what'] for c in d['ceilings']} and
    all(c['p25'] <= c['median'] <= c['p75'] <= c['best'] and c['best'] > 0 for c in d['ceilings'])" \
    bench machine --seconds 0.1 --json
check "kernels" json "[b['id'] for b in d['bars']].count('A2') == 1 and
    all(b['verdict'] in ('stretch', 'pass', 'miss', 'not on this CPU') for b in d['bars']) and
    all(b['figure'] > 0 and len(b['cases']) > 0 for b in d['bars'] if 'figure' in b)" \
    bench kernels --only A2,T1,K11 --rounds 2 --json
check "a rung that is none" refused "no rung 486" 1 bench kernels --isa 486
check "a bar that is none" refused "names no bar" 2 bench kernels --only Z9
check "rounds" lines "[x['round'] for x in d] == [1, 2] and
    all(x['decode_tokens_per_second'] > 0 and x['prefill_tokens_per_second'] > 0 for x in d)" \
    bench "$model" --decode 3 --prefill 8 --depth 5 --rounds 2 --threads 1
check "a round of a prefill alone" lines "len(d) == 1 and d[0]['decode_tokens_per_second'] == 0 and d[0]['prefill'] == 1" \
    bench "$model" --prefill 1 --decode 0 --rounds 1 --threads 1
check "the table of a model" json "len(d['model']['rows']) == 9 and d['model']['weights_bytes'] > 0 and
    sum('tokens_per_second' in r for r in d['model']['rows']) == 8 and
    d['model']['rows'][-1]['why_not'].startswith('longer than the context')" \
    bench model "$model" --prefill 8,600 --depth 0,70,100000 --batch 1,2,3 --rounds 2 --threads 2 --json --ctx-size 1000
exit $failed
