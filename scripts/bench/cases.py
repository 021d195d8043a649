"""What is measured on what, and which of it the goals speak of.

A case is named by its words, as in "read 4k warm 1": files of set 4k, state of the caches, readers.
Kind "threads" reads as "read" does, on mounts that differ in their number of event threads.
  cold   all caches dropped, the disk's too
  warm   the file system's own caches dropped, what it reads from in the page cache
  hot    every file was read a moment ago
"""

from collections import namedtuple

READ = ["null", "ours lz4", "ours none", "squashfuse_ll", "squashfs", "erofs", "ext4"]
BRIEF = ["null", "ours lz4", "squashfuse_ll"]
# Event threads: the system. 4 is the default.
THREADS = {1: "ours, 1 thread", 2: "ours, 2 threads", 4: "ours lz4", 8: "ours, 8 threads", 16: "ours, 16 threads"}
# Kinds that read every file once.
READING = ["read", "threads"]
LISTED = ["null", "ours lz4", "squashfuse_ll", "squashfs", "ext4"]
# With attributes the images take minutes for a million entries: 126 us each with squashfs, 81 with squashfuse_ll.
SHOWN = ["null", "ours lz4", "ext4"]

Case = namedtuple("Case", "kind set state readers systems")
# One side of a ratio: a case and a system in it. `over` is the other; the goal is at most `limit`
# (for kind "speed": at least). Kind "memory" has no other side: the limit is in MiB.
Goal = namedtuple("Goal", "text case system over_case over_system limit kind")


def name(case):
    return f"{case.kind} {case.set} {case.state} {case.readers}"


def many(readers):
    return "1 reader" if readers == 1 else f"{readers} readers"


def cases():
    listed = []

    def add(kind, set_name, state, readers, systems):
        listed.append(Case(kind, set_name, state, readers, systems))

    # Those with goals first, so that an interrupted run has them.
    add("read", "4k", "warm", 1, READ)
    add("read", "4k", "cold", 1, READ)
    add("read", "4k", "cold", 8, READ)
    add("read", "4k", "warm", 8, READ)
    add("read", "4k", "hot", 1, READ)
    add("read", "100k", "cold", 1, READ)
    add("read", "100k", "cold", 8, READ)
    add("read", "100k", "warm", 1, READ)
    add("read", "100k", "warm", 8, READ)
    add("read", "100k", "hot", 1, READ)
    add("read", "20k", "cold", 1, READ)
    add("read", "20k", "cold", 8, READ)
    add("read", "500k", "warm", 1, READ)
    add("cat", "1g", "cold", 1, READ)
    add("cat", "1g", "warm", 1, READ)
    for kind in ["ls -f", "ls -l", "scandir", "find"]:
        add(kind, "tiny", "cold", 1, LISTED if kind == "ls -f" else SHOWN)
    # How it scales.
    for readers in [2, 4, 16]:
        add("read", "4k", "warm", readers, BRIEF)
        add("read", "100k", "warm", readers, BRIEF)
    for readers in [4, 16]:
        add("read", "4k", "cold", readers, [*BRIEF, "ext4"])
    event_threads = list(THREADS.values())
    add("threads", "4k", "warm", 1, event_threads)
    for set_name in ["4k", "100k"]:
        for state in ["warm", "cold"]:
            add("threads", set_name, state, 8, event_threads)
    add("read", "4k", "hot", 8, READ)
    add("read", "20k", "warm", 1, READ)
    add("read", "20k", "warm", 8, READ)
    add("read", "20k", "hot", 1, READ)
    add("read", "500k", "cold", 1, READ)
    add("read", "50m", "cold", 1, ["null", "ours lz4", "ext4"])
    for kind in ["ls -f", "ls -l", "scandir", "find"]:
        add(kind, "tiny", "hot", 1, SHOWN)
    # Where the disk's part is left out, and with the programs of the reference.
    for kind in ["ls -l", "scandir"]:
        add(kind, "tiny", "warm", 1, SHOWN)
    for set_name in ["4k", "100k"]:
        add("python", set_name, "warm", 1, ["dataset-rt get_item", "ours open()", "ours os.open()"])
        add("epoch", set_name, "warm", 2, ["dataset-rt", "ours lz4"])
        # Readers are workers of PyTorch's DataLoader.
        add("torch", set_name, "cold", 2, ["null", "ours lz4", "squashfuse_ll", "ext4"])
    return listed


def goals():
    listed = []

    def ratio(text, case, system, over_system, limit, over_case=None, kind="time"):
        listed.append(Goal(text, case, system, over_case or case, over_system, limit, kind))

    ours = "ours lz4"
    ratio("4 KB warm, 1 reader, lz4, against null", "read 4k warm 1", ours, "null", 1.25)
    ratio("4 KB warm, 1 reader, none, against null", "read 4k warm 1", "ours none", "null", 1.25)
    for readers, four, hundred in [(1, 0.35, 0.85), (8, 0.25, 0.55)]:
        for state in ["warm", "cold"]:
            for set_name, kb, limit in [("4k", 4, four), ("100k", 100, hundred)]:
                text = f"{kb} KB {state}, {many(readers)}, lz4, against squashfuse_ll"
                ratio(text, f"read {set_name} {state} {readers}", ours, "squashfuse_ll", limit)
    for readers, limit in [(1, 0.6), (8, 0.9)]:
        for set_name, kb in [("4k", 4), ("20k", 20), ("100k", 100)]:
            text = f"{kb} KB cold, {many(readers)}, lz4, against ext4"
            ratio(text, f"read {set_name} cold {readers}", ours, "ext4", limit)
    ratio("4 KB hot, 1 reader, against ext4", "read 4k hot 1", ours, "ext4", 1.3)
    ratio("100 KB hot, 1 reader, against ext4", "read 100k hot 1", ours, "ext4", 1.1)
    ratio("500 KB lz4 warm, 1 reader, against null", "read 500k warm 1", ours, "null", 1.6)
    for state in ["cold", "warm"]:
        case = f"cat 1g {state} 1"
        ratio(f"1 GiB none {state}, speed against squashfuse_ll", case, "ours none", "squashfuse_ll", 2, kind="speed")
    for kind, text, limit in [
        ("ls -f", "ls -f", 0.5),
        ("ls -l", "ls -l", 0.65),
        ("scandir", "scandir + stat", 0.65),
        ("find", "find -size", 1.3),
    ]:
        ratio(f"{text} of 1 M, first time, against ext4", f"{kind} tiny cold 1", ours, "ext4", limit)
    ratio("start-up with 10 M samples against reading index and metadata", "startup", "ours", "read", 1.5)
    text = "daemon's memory with 10 M samples, beside mapped files"
    listed.append(Goal(text, "startup", "ours", None, None, 64, "memory"))
    listed.append(
        Goal("daemon's CPU time per 4 KB warm, lz4, against null", "read 4k warm 1", ours, "read 4k warm 1", "null", 1.5, "cpu")
    )
    return listed
