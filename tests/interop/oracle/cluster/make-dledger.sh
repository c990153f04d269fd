#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stores whose log is one of DLedger, by real brokers of 5.3.3 and 4.9.7: make-dledger.sh OUTDIR [NAME]...
# Build both first (README.md). Writes OUTDIR/NAME/store.tar.gz, and of a broker that was started on a copy of it:
# received.jsonl (what a real client got), answers.jsonl (what the broker said). Two minutes a store.
set -eu
out=${1:?usage: make-dledger.sh OUTDIR [NAME]...}
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
sizes="--set mappedFileSizeCommitLog=65536 --set mappedFileSizeConsumeQueue=4000 --set maxHashSlotNum=100
    --set maxIndexNum=400 --set timerWheelEnable=false"

broker() { # name, then options of serve
    name=$1
    shift
    release=${name##*-}
    # shellcheck disable=SC2086  # the sizes are words
    java -Xmx384m -Duser.home="$work" -Djava.io.tmpdir="$work" -Duser.timezone=UTC -Dfile.encoding=UTF-8 \
        -jar "$here/target/compat${release%x}/cluster.jar" serve "$@" --limit 300 $sizes 2>> "$work/$name.err"
}

pack() { # name
    mkdir -p "$out/$1"
    rm -rf "$work/$1/packed"
    cp -r "$work/$1/store" "$work/$1/packed-store"
    mkdir "$work/$1/packed"
    mv "$work/$1/packed-store" "$work/$1/packed/store"
    rm -rf "$work/$1/packed/store"/dledger-*/index # 160 MiB of zeros nearly
    tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work/$1/packed" -cf - store | gzip -9n > "$out/$1/store.tar.gz"
}

judge() { # name port dledger-settings: a broker on the store, read by a real client
    name=$1 port=$2
    shift 2
    ids=$(python3 -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
pairs = [(row["topic"], row.get("offset_msg_id") or row["msg_id"]) for row in rows if row["topic"] != "later"]
print(",".join(f"{topic}:{one}" for topic, one in pairs[:: max(len(pairs) // 8, 1)]))' "$work/$name/sent.jsonl")
    broker "$name" "$work/$name/store" --port "$port" --received "$out/$name/received.jsonl" \
        --keys orders:sent-3,orders:sent-33,stock:sent-5,orders:no-such-key --ids "$ids" "$@" > "$out/$name/answers.jsonl"
}

for name in ${*:-dledger-rolled-5x dledger-rolled-4x dledger-mixed-5x dledger-mixed-4x dledger-killed-5x}; do
    store=$work/$name/store
    mkdir -p "$store/config"
    case $name in *-4x) port=23330 ;; *) port=23310 ;; esac
    dledger="--set enableDLegerCommitLog=true --set dLegerGroup=broker-a --set dLegerSelfId=n0
        --set dLegerPeers=n0-127.0.0.1:$((port + 9))"
    first=$dledger
    case $name in *-mixed-*) first= ;; esac
    # shellcheck disable=SC2086  # the settings are words
    case $name in
        *-killed-*)
            broker "$name" "$store" --port $port --topics "" --send orders=260,stock=90,later@1=9 --keep 120 \
                --sent "$work/$name/sent.jsonl" $first > "$work/$name.out" &
            until grep -q '"topic":"later"' "$work/$name.out"; do sleep 1; done
            sleep 4
            kill -9 "$(pgrep -P $! java || echo $!)"
            wait || true
            : > "$work/$name/sent.jsonl" # a broker that is killed writes none
            ;;
        *)
            broker "$name" "$store" --port $port --topics "" --send orders=260,stock=90,later@1=9 \
                --answer group:half --prepare group:half=9 --keep 6 --sent "$work/$name/sent.jsonl" $first
            broker "$name" "$store" --port $port --topics "" --send orders=60 --keep 2 \
                --sent "$work/$name/sent-again.jsonl" $dledger
            ;;
    esac
    pack "$name"
    # shellcheck disable=SC2086
    judge "$name" $port $dledger
done
echo "work is left in $work"
