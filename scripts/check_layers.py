#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point down only: each room may include itself and the rooms below it.

Prints one line per violation and exits 1 if there is any. --selftest plants violations in a
temporary tree and expects each to be found.
"""
import pathlib
import re
import sys
import tempfile

ORDER = ['base', 'format', 'block', 'journal', 'alloc', 'writeback', 'fs', 'fs/fuse']
CHECKERS = ['base', 'format', 'block', 'journal']
# The rooms each room may include besides itself. mkfs and fsck stop at the journal on purpose:
# fsck is a second opinion that shares the format, not the caches.
MAY = {room: set(ORDER[:i]) for i, room in enumerate(ORDER)}
MAY.update(mkfs=set(CHECKERS), fsck=set(CHECKERS), ctl=set(CHECKERS))
# System headers that belong to one room (its tests may use them too).
OWNED = [
    (re.compile(r'(fuse\.h|fuse3/|fuse_\w+\.h|linux/fuse\.h)'), 'fs/fuse'),
    (re.compile(r'(liburing\.h|liburing/|linux/io_uring\.h)'), 'block'),
]
# tests/fuse is the twin of fs/fuse; a benchmark or smoke program is nobody's room.
TEST_TWIN = {'tests/fuse': 'fs/fuse', 'tests/block': 'block'}

# Libraries whose own habit is the quoted form.
QUOTED_LIBRARIES = ('absl/', 'gtest/', 'gmock/')

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a path relative to the root: the longest match, or None."""
    parts = path.split('/')
    for room in sorted(list(MAY) + ['tests'], key=len, reverse=True):
        depth = room.count('/') + 1
        if len(parts) > depth and '/'.join(parts[:depth]) == room:
            return room
    return None


def check_include(file, room, quote, target):
    """The complaint about one include, or None."""
    for pattern, owner in OWNED:
        if pattern.match(target) and quote == '<':
            twin = TEST_TWIN.get('/'.join(file.split('/')[:2]))
            if room != owner and twin != owner:
                return f'only {owner}/ includes <{target}>'
    if quote == '<' or target.startswith(QUOTED_LIBRARIES):
        return None
    there = room_of(target)
    if there is None:
        return f'"{target}" is not written from the root of the tree'
    if room == 'tests' or there == room:
        return None
    if there not in MAY[room]:
        return f'{room}/ must not include "{target}"'
    return None


def violations(root):
    found = []
    for path in sorted(root.rglob('*')):
        file = path.relative_to(root).as_posix()
        room = room_of(file)
        if room is None or path.suffix not in ('.h', '.cc', '.inc', '.def') or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            complaint = check_include(file, room, *match.groups())
            if complaint:
                found.append(f'{file}:{number}: {complaint}')
    return found


def selftest():
    bad = {
        'base/a.h': '#include "format/x.h"',
        'format/a.h': '#include "block/device.h"',
        'journal/a.cc': '#  include "alloc/x.h"',
        'fs/a.cc': '#include "fs/fuse/x.h"',
        'fs/b.cc': '#include <fuse_lowlevel.h>',
        'fs/c.cc': '#include <linux/fuse.h>',
        'journal/b.cc': '#include <liburing.h>',
        'mkfs/a.cc': '#include "alloc/x.h"',
        'fsck/a.cc': '#include "fs/x.h"',
        'fsck/b.cc': '#include "mkfs/x.h"',
        'block/a.cc': '#include "tests/support/x.h"',
        'alloc/a.cc': '#include "sibling.h"',
        'tests/fs/a.cc': '#include <fuse_lowlevel.h>',
    }
    good = {
        'base/ok.h': '#include <vector>\n#include "base/x.h"\n#include "absl/time/time.h"',
        'fs/ok.cc': '#include "fs/x.h"\n#include "writeback/x.h"\n#include "base/x.h"',
        'fs/fuse/ok.cc': '#include <fuse_lowlevel.h>\n#include "fs/x.h"\n#include "fs/fuse/x.h"',
        'block/ok.cc': '#include <liburing.h>\n#include "format/x.h"',
        'fsck/ok.cc': '#include "journal/x.h"\n#include "fsck/x.h"',
        'tests/fs/ok.cc': '#include "tests/support/x.h"\n#include "fs/x.h"',
        'tests/fuse/ok.cc': '#include <fuse_lowlevel.h>',
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in {**bad, **good}.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text + '\n', encoding='utf-8')
        found = {line.split(':')[0] for line in violations(root)}
    if found != set(bad):
        print('check_layers selftest: not found:', sorted(set(bad) - found),
              'found by mistake:', sorted(found - set(bad)))
        return 1
    return 0


def main():
    if sys.argv[1:] == ['--selftest']:
        return selftest()
    root = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parents[1]
    found = violations(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
