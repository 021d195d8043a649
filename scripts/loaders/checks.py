"""What each recipe of docs/loaders.md must have seen: the content of the files that were packed.

A recipe in Python is checked by the variables that it leaves, one for the shell by what it printed and the files
in its folder. Recipes and checks have the same names, with `_` for `-`.
"""

import io
import json
import os
import subprocess
import tarfile
import wave
from pathlib import Path

ORIGINALS = Path(os.environ["LOADERS_ORIGINALS"])
MOUNT = Path(os.environ["LOADERS_MOUNT"])
VIEWS = MOUNT / "views"


def same(found, expected, what="content"):
    assert found == expected, f"{what}: found {str(found)[:200]}, expected {str(expected)[:200]}"


def contents(folder):
    """Path below `folder` and bytes of each file there, but for what a view adds."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("metadata.jsonl", None)
    assert files
    return files


def pictures():
    return dict(sorted(contents(ORIGINALS / "pictures").items()))


def pixels(encoded):
    from PIL import Image

    return Image.open(io.BytesIO(encoded)).tobytes()


def same_tensors(batches, expected):
    """Batches of picture tensors and labels hold the expected (pixels, label) in order."""
    found = [
        (picture.mul(255).round().byte().permute(1, 2, 0).numpy().tobytes(), int(label))
        for tensors, labels in batches
        for picture, label in zip(tensors, labels)
    ]
    assert found == expected, "pixels or labels differ"


def torchvision(seen):
    expected = [(pixels(data), int(name.startswith("dog"))) for name, data in pictures().items()]
    same(seen["pictures"].classes, ["cat", "dog"])
    same(len(seen["epochs"]), 3)
    for epoch in seen["epochs"]:
        same_tensors(epoch, expected)


def torchvision_samples(seen):
    # Cats are the cache 2, dogs the cache 10; 10 comes first.
    same(seen["pictures"].classes, ["10", "2"])
    by_label = [
        [pixels(data) for name, data in pictures().items() if name.startswith(label)] for label in ("dog", "cat")
    ]
    # Samples as ImageFolder orders them: by name as text.
    order = sorted(range(32), key=str)
    expected = [(by_label[label][n], label) for label in (0, 1) for n in order]
    same(len(seen["epochs"]), 3)
    for epoch in seen["epochs"]:
        same_tensors(epoch, expected)


def huggingface_images(seen):
    found = {row["path"]: (row["image"].tobytes(), row["label"]) for row in seen["pictures"]}
    same(found, {name: (pixels(data), name.split("/")[0]) for name, data in pictures().items()})


def pillow(seen):
    same(seen["picture"].format, "PNG")
    same(seen["pixels"], pixels(pictures()["cat/00.png"]))


def glob(seen):
    same([str(Path(path).relative_to(VIEWS / "pictures")) for path in seen["paths"]], list(pictures()))
    same(seen["pictures"], list(pictures().values()))


def huggingface_sounds(seen):
    found = {}
    for path, label, data in seen["waves"]:
        same(label, path.split("/")[0])
        # Decoders give floats from -1 to 1 for the 16 bit integers of the file.
        found[path] = (data[0] * 2**15).round().short().numpy().tobytes()
    expected = {}
    for name in contents(ORIGINALS / "sounds"):
        with wave.open(str(ORIGINALS / "sounds" / name)) as sound:
            expected[name] = sound.readframes(sound.getnframes())
    same(found, expected)


def said_of_originals(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ffprobe(out):
    command = ["ffprobe", "-v", "error", "-show_streams", "-of", "json"]
    files = ["files/clips/clip.mp4", "sounds/high/0.wav"]
    expected = "".join(said_of_originals([*command, ORIGINALS / file]) for file in files)
    assert '"video"' in expected and '"audio"' in expected
    same(out, expected)


def ffmpeg(out):
    for file, sums in (("files/clips/clip.mp4", "clip.md5"), ("sounds/high/0.wav", "sound.md5")):
        expected = said_of_originals(["ffmpeg", "-v", "error", "-i", ORIGINALS / file, "-f", "framemd5", "-"])
        same(Path(sums).read_text(), expected)


def numpy(seen):
    import numpy

    array = numpy.load(ORIGINALS / "files/arrays/large.npy")
    assert isinstance(seen["array"], numpy.memmap)
    assert (seen["array"] == array).all() and (seen["rows"] == array[[0, 1000, -1]]).all()
    for name in ("small", "large"):
        array = numpy.load(ORIGINALS / f"files/arrays/{name}.npy")
        for mode in ("r", "c"):
            mapped = numpy.load(VIEWS / f"files/arrays/{name}.npy", mmap_mode=mode)
            assert mapped.shape == array.shape and (mapped == array).all()
        mapped[0] = -1
        again = numpy.load(VIEWS / f"files/arrays/{name}.npy", mmap_mode="r")
        assert (again == array).all(), "what is written to a private map stays private"


def h5py(seen):
    import h5py

    with h5py.File(ORIGINALS / "files/arrays/grid.h5") as file:
        assert (seen["grid"] == file["grid"][:]).all()


def sqlite(seen):
    same(seen["rows"], [(n, f"row {n}") for n in range(5000)])


def polars(seen):
    found = [Path(path).read_bytes() for (path,) in seen["cats"].rows()]
    same(found, [data for name, data in pictures().items() if name.startswith("cat")])


def duckdb(seen):
    found = {str(Path(path).relative_to(VIEWS / "pictures")): data for path, data in seen["pictures"]}
    same(found, pictures())


def duckdb_join(seen):
    same(dict(seen["cats"]), {name: data for name, data in pictures().items() if name.startswith("cat")})


def pyarrow(seen):
    import pyarrow.ipc

    with pyarrow.memory_map(str(MOUNT / "metadata.arrow")) as mapped:
        assert pyarrow.ipc.open_file(mapped).read_all().equals(seen["joined"])
    joined = seen["joined"].select(["path", "size", "path_meta", "label"]).to_pylist()
    files = {}
    for folder in ("pictures", "sounds", "files"):
        for name, data in contents(ORIGINALS / folder).items():
            files[folder, name] = data
    same(len(joined), len(files))
    assert sorted(files.values()) == sorted((MOUNT / row["path"]).read_bytes() for row in joined)
    for row in joined:
        assert (MOUNT / row["path"]).stat().st_size == row["size"]
    same(seen["parts"]["n"].to_pylist(), list(range(3000)))


def webdataset(out):
    import webdataset

    found = {
        sample["__key__"] + ".png": sample["png"]
        for sample in webdataset.WebDataset("pictures-000000.tar", shardshuffle=False)
    }
    same(found, pictures())


def same_files(copy):
    same(contents(copy), contents(ORIGINALS / "files"))
    mounted = (VIEWS / "files/zeros").stat()
    same(copy.joinpath("zeros").stat().st_mtime_ns, mounted.st_mtime_ns, "mtime")


def rsync(out):
    same(out, "", "what the second run copied")
    same_files(Path("copy"))


def tar(out):
    with tarfile.open("files.tar") as archive:
        archive.extractall("copy")
    same(contents(Path("copy")), contents(ORIGINALS / "files"))


def cp(out):
    same_files(Path("copy"))


def find(out):
    command = ["find", ORIGINALS / "files", "-type", "f", "-size", "+1000k", "-printf", "%P %s\n"]
    expected = sorted(said_of_originals(command).splitlines())
    assert len(expected) == 2
    same(sorted(out.splitlines()), expected)


def du(out):
    lines = (VIEWS / "pictures/metadata.jsonl").stat().st_size
    same(int(out.split()[0]), lines + sum(map(len, pictures().values())))


def grep(out):
    notes = contents(ORIGINALS / "files/notes")
    found = sorted(str(Path(path).relative_to(VIEWS / "files/notes")) for path in out.splitlines())
    same(found, sorted(name for name, data in notes.items() if b"needle" in data))


def busybox(out):
    files = [ORIGINALS / "files/notes/1.txt", ORIGINALS / "files/arrays/large.npy"]
    same(Path("both").read_bytes(), b"".join(file.read_bytes() for file in files))
