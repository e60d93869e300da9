#!/usr/bin/env bash
# Every *.txt here is a transcript that the program, with the mock model, must repeat.
exec python3 "$(dirname "$0")/replay_transcripts.py" "$1" "$(dirname "$0")"/*.txt
