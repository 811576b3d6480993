# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/compare measures.

A workload prepares itself on a mounted filesystem, is measured in a mount of its own with cold
caches, and answers one number. `better` says whether that number should be high (a rate) or low (a time).
"""

import json
import os
import subprocess
import time

from targets import run


class Workload:
    """One measured piece of work."""

    better = "high"
    needs = ()

    def __init__(self, name, unit):
        self.name = name
        self.unit = unit

    def prepare(self, root):
        """Not measured; a remount and a drop of the caches follow."""

    def measure(self, root):
        raise NotImplementedError

    def finish(self, root):
        """Not measured: removes what the workload made."""


class FsMark(Workload):
    """Small files; files a second as fs_mark itself counts them."""

    needs = ("fs_mark",)

    def __init__(self, sync, threads, files):
        super().__init__(f"fs_mark -S {sync}, {threads} thread{'s' if threads > 1 else ''}", "files/s")
        self.sync = sync
        self.threads = threads
        self.files = files

    def measure(self, root):
        command = ["fs_mark", "-k", "-s", "4096", "-S", str(self.sync), "-t", str(self.threads),
                   "-n", str(max(1, self.files // self.threads)), "-l", "/dev/null"]
        if self.sync == 0:
            command += ["-d", "./mark", "-D", "16"]
        else:
            # The kernel holds a directory's lock across fsync: one directory for each thread.
            for thread in range(self.threads):
                command += ["-d", f"./mark/{thread}"]
            os.makedirs(os.path.join(root, "mark"), exist_ok=True)
        output = run(*command, cwd=root)
        lines = output.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("FSUse%"))
        return float(lines[header + 1].split()[3])

    def finish(self, root):
        run("rm", "-rf", os.path.join(root, "mark"))


class Fio(Workload):
    """A file of its own, laid out before and read or written with fio."""

    needs = ("fio",)

    def __init__(self, name, mode, megabytes, seconds):
        super().__init__(name, "IOPS" if mode.startswith("rand") else "MiB/s")
        self.mode = mode
        self.megabytes = megabytes
        self.seconds = seconds

    def file(self, root):
        return os.path.join(root, "fio.file")

    def prepare(self, root):
        if self.mode == "write":
            return
        chunk = os.urandom(1 << 20)
        with open(self.file(root), "wb") as file:
            for _ in range(self.megabytes):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    def measure(self, root):
        command = ["fio", "--name=bench", f"--filename={self.file(root)}", f"--rw={self.mode}",
                   f"--size={self.megabytes}m", "--ioengine=psync", "--output-format=json",
                   "--allow_file_create=1", "--invalidate=0", "--randrepeat=1"]
        if self.mode.startswith("rand"):
            command += ["--bs=4k", "--direct=1", "--time_based", f"--runtime={self.seconds}"]
        else:
            command += ["--bs=1m", "--end_fsync=1" if self.mode == "write" else "--direct=0"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        output = done.stdout
        job = json.loads(output[output.index("{"):])["jobs"][0]
        side = job["read" if self.mode.endswith("read") else "write"]
        if self.mode.startswith("rand"):
            return side["iops"]
        return side["io_bytes"] / 2**20 / (job["job_runtime"] / 1000)

    def finish(self, root):
        os.unlink(self.file(root))


class Timed(Workload):
    """A program's wall clock time."""

    better = "low"

    def __init__(self, name):
        super().__init__(name, "s")

    def work(self, root):
        raise NotImplementedError

    def measure(self, root):
        start = time.monotonic()
        self.work(root)
        return time.monotonic() - start


class Untar(Timed):
    def __init__(self, archive):
        super().__init__("untar")
        self.archive = archive

    def work(self, root):
        tree = os.path.join(root, "tree")
        os.mkdir(tree)
        run("tar", "xf", self.archive, "-C", tree)

    def finish(self, root):
        run("rm", "-rf", os.path.join(root, "tree"))


class OnTree(Timed):
    """Work on a tree that was unpacked before."""

    def __init__(self, name, archive):
        super().__init__(name)
        self.untar = Untar(archive)

    def prepare(self, root):
        self.untar.work(root)

    def finish(self, root):
        self.untar.finish(root)


class StatWalk(OnTree):
    def work(self, root):
        run("find", os.path.join(root, "tree"), "-size", "+1000000k")


class Remove(OnTree):
    def work(self, root):
        run("rm", "-r", os.path.join(root, "tree"))


def make_archive(directory, files):
    """A tar file of up to `files` headers and sources of this machine."""
    archive = os.path.join(directory, "tree.tar")
    names = []
    for base, _, entries in sorted(os.walk("/usr/include")):
        names += [os.path.join(base, entry) for entry in sorted(entries)]
    names = [name for name in names if os.path.isfile(name) and not os.path.islink(name)][:files]
    if len(names) < 100:
        raise RuntimeError("fewer than 100 files in /usr/include")
    listing = os.path.join(directory, "tree.list")
    with open(listing, "w", encoding="utf-8") as file:
        file.write("\n".join(name.lstrip("/") for name in names) + "\n")
    run("tar", "cf", archive, "-C", "/", "-T", listing)
    return archive, len(names)


def all_workloads(quick, archive):
    plain, synced = (4000, 800) if quick else (20000, 4000)
    megabytes, seconds = (128, 2) if quick else (512, 10)
    work = {}
    for threads in (1, 4, 16):
        work[f"fsmark0-{threads}"] = FsMark(0, threads, plain)
    for threads in (1, 2, 4, 16):
        work[f"fsmark1-{threads}"] = FsMark(1, threads, synced)
    work["randread"] = Fio("4 KiB random read, direct", "randread", megabytes, seconds)
    work["randwrite"] = Fio("4 KiB random write, direct", "randwrite", megabytes, seconds)
    work["seqwrite"] = Fio("1 MiB sequential write, fsync at the end", "write", megabytes * 2, 0)
    work["seqread"] = Fio("1 MiB sequential read, cold", "read", megabytes * 2, 0)
    work["untar"] = Untar(archive)
    work["statwalk"] = StatWalk("stat walk, cold", archive)
    work["rm"] = Remove("rm -r, cold", archive)
    return work
