"""Packs the same samples with our tool and with dataset-rt, and reads each other's caches.

usage: interop.py FOLDER-OF-OUR-PROGRAMS WORK-FOLDER
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import dataset_rt

PROGRAMS, WORK = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
SAMPLES = 400
SHARD_BYTES = 150_000


def payload(rng, n):
    """Empty, tiny, random, repeated and mixed payloads, some above the size of a shard."""
    kind = n % 6
    if kind == 0:
        return b""
    if kind == 1:
        return bytes([n % 256])
    if kind == 2:
        return rng.randbytes(rng.randrange(5_000))
    if kind == 3:
        return (b"line %d of a text\n" % n) * rng.randrange(400)
    if kind == 4:
        return rng.randbytes(700) + bytes(rng.randrange(70_000)) + rng.randbytes(700)
    return rng.randbytes(200_000) if n % 66 == 5 else b"abc" * 30


def make_samples():
    """Files in class folders, in the order in which a folder is packed, and their metadata."""
    rng = random.Random(7)
    samples = []
    for n in range(SAMPLES):
        label = ["cat", "dog", "caf\u00e9"][n % 3]
        samples.append((f"{label}/{n:04}.bin", payload(rng, n), {
            "flag": n % 2 == 0,
            "index": rng.randrange(-2**62, 2**62),
            "label": label,
            "note": rng.choice(['a "quote"', "tab\there", "\u65e5\u672c", "back\\slash", ""]),
            # Values that the reference's parser gives back exactly.
            "score": round(rng.uniform(-100, 100), 3),
        }))
    samples.sort(key=lambda sample: sample[0].encode())
    for path, data, metadata in samples:
        metadata["path"] = path
        file = WORK / "in" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    fields = ["flag", "index", "note", "score"]
    with open(WORK / "metadata.jsonl", "w", encoding="utf-8") as table:
        for path, _, metadata in samples:
            row = {"path": path, **{field: metadata[field] for field in fields}}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")
    return samples


class Source:
    """What dataset-rt's writer takes."""

    def __init__(self, name, samples):
        self.name, self.samples = name, samples

    def __iter__(self):
        for _, data, metadata in self.samples:
            yield dataset_rt.CacheInput(data=data, metadata=metadata)


def tool(*args):
    done = subprocess.run([PROGRAMS / "datasetrt", *args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"datasetrt {' '.join(map(str, args))}: {done.returncode}\n{done.stderr}")
    return done.stdout


def write_ours(name, algo):
    out = WORK / f"ours-{algo}"
    tool("pack", "--name", name, "--metadata", WORK / "metadata.jsonl", "--compression", algo,
         "--max-shard-bytes", str(SHARD_BYTES), WORK / "in", out)
    return out / name


def write_theirs(runtime, name, algo, samples):
    config = dataset_rt.WriterConfig(
        max_shard_bytes=SHARD_BYTES,
        shard_compression=dataset_rt.ShardCompression(algo=algo, ratio=1.0),
        show_progress=False,
    )
    out = WORK / f"theirs-{algo}"
    out.mkdir()
    [result] = runtime.write_cache(Source(name, samples), out, writer_config=config)
    if not isinstance(result, dataset_rt.CacheWriteSuccess):
        sys.exit(f"dataset-rt did not write: {result}")
    return Path(result.path)


def same_files(ours, theirs):
    names = ["index.bin"] + sorted(f"shards/{shard.name}" for shard in (ours / "shards").iterdir())
    assert len(names) > 5, names
    assert names[1:] == sorted(f"shards/{shard.name}" for shard in (theirs / "shards").iterdir())
    for name in names:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), f"{name} differs"
    manifests = [json.loads((cache / "manifest.json").read_text()) for cache in (ours, theirs)]
    # The tables hold the same values in other bytes: ours are written in batches.
    for manifest in manifests:
        del manifest["metadata_sha256"]
    assert manifests[0] == manifests[1], "manifests differ"
    return manifests[0]["cache_id"], len(names) - 1


def read_by_them(runtime, cache, cache_id, samples):
    config = dataset_rt.ReaderConfig(seed=1, shuffle=False, validate_cache=True)
    dataset = runtime.cached_dataset([cache], reader_config=config)
    assert len(dataset) == len(samples)
    for n, (path, data, metadata) in enumerate(samples):
        sample = dataset.get_item(cache_id, n)
        assert bytes(sample.data) == data, path
        assert dict(sample.metadata) == metadata, (path, sample.metadata, metadata)
        assert (sample.cache_id, sample.sample_id) == (cache_id, n)
    return dataset.get_metadata()


def read_by_mount(cache, cache_id, samples):
    mount = WORK / "mnt"
    mount.mkdir(exist_ok=True)
    subprocess.run([PROGRAMS / "datasetrt-mount", cache, mount], check=True)
    try:
        for n, (path, data, _) in enumerate(samples):
            assert (mount / "samples" / str(cache_id) / str(n)).read_bytes() == data, path
    finally:
        unmount = ["umount"] if os.getuid() == 0 else ["fusermount3", "-u"]
        subprocess.run([*unmount, mount], check=True)


def main():
    samples = make_samples()
    runtime = dataset_rt.DatasetRuntime(num_workers=2)
    for name, algo in (("caf\u00e9", "lz4"), ("plain set", "none")):
        ours = write_ours(name, algo)
        theirs = write_theirs(runtime, name, algo, samples)
        cache_id, shards = same_files(ours, theirs)
        print(f"{algo}: index.bin, {shards} shards and manifest are the same")
        ours_table = read_by_them(runtime, ours, cache_id, samples)
        theirs_table = read_by_them(runtime, theirs, cache_id, samples)
        assert ours_table.equals(theirs_table), "metadata tables differ"
        print(f"{algo}: dataset-rt reads all {len(samples)} samples of our cache, checksums on")
        tool("verify", theirs)
        print(f"{algo}: its cache is verified by us")
        if Path("/dev/fuse").exists():
            read_by_mount(theirs, cache_id, samples)
            print(f"{algo}: its cache is mounted by us, all samples equal")
        else:
            print(f"{algo}: NOT MOUNTED: there is no /dev/fuse here")
    shutil.rmtree(WORK / "in")
    print("4 caches, no difference")


main()
