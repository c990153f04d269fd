#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stores of other kinds than plain files, each by a real broker of 5.3.3: make-kinds.sh OUTDIR
# Build first (README.md). Writes OUTDIR/KIND/store.tar.gz and OUTDIR/KIND/sent.jsonl.
set -eu
out=${1:?usage: make-kinds.sh OUTDIR}
jar=$(cd "$(dirname "$0")" && pwd)/target/compat5/cluster.jar
work=$(mktemp -d)
port=21911

# make KIND SETTING...: a broker with these settings takes 60 messages of one topic and 30 of another.
make() {
    kind=$1
    shift
    port=$((port + 10))
    store=$work/$kind/store
    mkdir -p "$store/config" "$out/$kind"
    if [ "$kind" = compaction-5x ]; then
        cat > "$store/config/topics.json" <<'JSON'
{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":0},"topicConfigTable":{"orders":{"attributes":
{"cleanup.policy":"COMPACTION"},"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG",
"topicName":"orders","topicSysFlag":0,"writeQueueNums":2}}}
JSON
    fi
    set -- "$@" mappedFileSizeCommitLog=65536 mappedFileSizeConsumeQueue=2000 maxHashSlotNum=100 maxIndexNum=400 \
        timerWheelEnable=false compactionMappedFileSize=65536 compactionCqMappedFileSize=2000
    settings=
    for setting in "$@"; do settings="$settings --set $setting"; done
    # shellcheck disable=SC2086  # the settings are words
    java -Xmx512m -Duser.home="$work" -Djava.io.tmpdir="$work" -Duser.timezone=UTC -Dfile.encoding=UTF-8 -jar "$jar" \
        serve "$store" --limit 200 --port "$port" --topics "" --send orders=60,stock=30 --keep 5 \
        --sent "$out/$kind/sent.jsonl" $settings
    rm -rf "$store"/dledger-*/index # 160 MiB of zeros nearly
    tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work/$kind" -cf - store | gzip -9n > "$out/$kind/store.tar.gz"
}

make rocksdb-5x storeType=defaultRocksDB
make rocksdb-v2-5x storeType=defaultRocksDB configManagerVersion=v2
make rocksdb-double-5x rocksdbCQDoubleWriteEnable=true
make dledger-5x enableDLegerCommitLog=true dLegerGroup=broker-a dLegerPeers=n0-127.0.0.1:22999 dLegerSelfId=n0
make tiered-5x messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore tieredStorageLevel=FORCE \
    tieredBackendServiceProvider=org.apache.rocketmq.tieredstore.provider.PosixFileSegment \
    tieredStoreFilePath="$work/tiered-5x/store"
make compaction-5x
rm -rf "$work"
