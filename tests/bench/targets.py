# SPDX-License-Identifier: Apache-2.0
"""The filesystems that tests/bench/compare sets beside each other.

A target knows how to make its filesystem in an image, mount it and unmount it. All images have the same size, lie in
the same directory, and are written in full before anything is measured, so that no target pays
for the host's block allocation.
"""

import os
import shutil
import subprocess
import time


class Unavailable(Exception):
    """This target cannot run here; the message says why."""


def run(*command, **kwargs):
    """Runs a command; its output becomes part of the error if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Unavailable(f"no program {program}")


def need_root():
    if os.geteuid() != 0:
        raise Unavailable("needs root")


def daemon_pids(program, image):
    """Processes that run `program` with `image` on their command line."""
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if image.encode() in words and os.path.basename(words[0]).decode() == program:
            pids.append(int(entry))
    return pids


class Target:
    """One filesystem. Subclasses say how it is made and mounted."""

    name = ""

    def __init__(self, directory, size):
        self.image = os.path.join(directory, self.name + ".img")
        # fs_mark takes only short paths, so everything runs relative to the mountpoint anyway.
        self.mountpoint = os.path.join(directory, self.name)
        self.size = size
        os.makedirs(self.mountpoint, exist_ok=True)

    def write_image(self):
        block = b"\0" * (1 << 20)
        with open(self.image, "wb") as file:
            for _ in range(self.size >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def make(self):
        raise NotImplementedError

    def mount(self):
        raise NotImplementedError

    def unmount(self):
        if not os.path.ismount(self.mountpoint):
            return
        if os.geteuid() == 0:
            run("umount", self.mountpoint)
        else:
            run("fusermount3", "-u", self.mountpoint)
        self.wait_released()

    def wait_released(self):
        """Until nobody holds the image."""

    def wait_daemon(self, program):
        for _ in range(6000):
            if not daemon_pids(program, self.image):
                return
            time.sleep(0.01)
        raise RuntimeError(f"{program} does not end")

    def abandon(self):
        """Unmounts by force, after a failure."""
        if os.path.ismount(self.mountpoint):
            subprocess.run(["umount", "-l", self.mountpoint], check=False)


class Sluicefs(Target):
    name = "sluicefs"

    def __init__(self, directory, size, build, options):
        super().__init__(directory, size)
        self.program = os.path.join(build, "fs/fuse/sluicefs")
        self.mkfs = os.path.join(build, "mkfs/mkfs.sluicefs")
        self.options = options
        for program in (self.program, self.mkfs):
            if not os.access(program, os.X_OK):
                raise Unavailable(f"no {program}")

    def make(self):
        run(self.mkfs, "-q", "-F", self.image)

    def mount(self):
        words = ["-o", self.options] if self.options else []
        run(self.program, self.image, self.mountpoint, *words)

    def wait_released(self):
        self.wait_daemon("sluicefs")


class Ext4(Target):
    """The kernel's ext4 on a loop device as losetup makes it: through the host's page cache."""

    name = "ext4"
    direct = False

    def __init__(self, directory, size):
        super().__init__(directory, size)
        need_root()
        need("mkfs.ext4", "losetup")
        if not os.path.exists("/dev/loop-control"):
            raise Unavailable("no loop devices")
        self.loop = None

    def make(self):
        # Without nodiscard mkfs would punch out the image that was just written.
        run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", self.image)

    def mount(self):
        flag = "on" if self.direct else "off"
        self.loop = run("losetup", "--find", "--show", f"--direct-io={flag}", self.image).strip()
        run("mount", "-t", "ext4", self.loop, self.mountpoint)

    def unmount(self):
        super().unmount()
        if self.loop is not None:
            run("losetup", "-d", self.loop)
            self.loop = None

    def abandon(self):
        super().abandon()
        if self.loop is not None:
            subprocess.run(["losetup", "-d", self.loop], check=False)


class Ext4Direct(Ext4):
    """The same with --direct-io=on: what the device does, without the host's page cache."""

    name = "ext4-dio"
    direct = True


class Fuse2fs(Target):
    """ext4's format served by e2fsprogs' FUSE program."""

    name = "fuse2fs"

    def __init__(self, directory, size):
        super().__init__(directory, size)
        need_root()
        need("fuse2fs", "mkfs.ext4")

    def make(self):
        run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", self.image)

    def mount(self):
        run("fuse2fs", self.image, self.mountpoint)
        for _ in range(500):
            if os.path.ismount(self.mountpoint):
                return
            time.sleep(0.01)
        raise RuntimeError("fuse2fs does not mount")

    def wait_released(self):
        self.wait_daemon("fuse2fs")


NAMES = ["sluicefs", "ext4", "ext4-dio", "fuse2fs"]


def make_target(name, directory, size, build, options):
    if name == "sluicefs":
        return Sluicefs(directory, size, build, options)
    return {"ext4": Ext4, "ext4-dio": Ext4Direct, "fuse2fs": Fuse2fs}[name](directory, size)
