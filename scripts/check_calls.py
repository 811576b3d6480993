#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that belong to one room: device I/O, errno, clocks and sleeps.

Prints one line per violation and exits 1 if there is any. Comments and string literals do not
count. --selftest plants violations in a temporary tree and expects each to be found.
"""
import pathlib
import re
import sys
import tempfile

# (what, pattern, files where it is allowed, does the rule hold in tests too)
RULES = [
    ('device I/O outside block/',
     re.compile(r'\b(p(read|write)(v2?|64)?|fsync|fdatasync|sync_file_range|syncfs)\s*\('
                r'|\bio_uring_\w+'),
     re.compile(r'block/'), False),
    ('errno outside block/, fs/fuse/ and the programs\' main files',
     re.compile(r'\berrno\b'),
     re.compile(r'block/|fs/fuse/|[^/]+/main\.cc$'), False),
    ('a clock or randomness outside base/',
     re.compile(r'\b(system_clock|steady_clock|high_resolution_clock|random_device|clock_gettime'
                r'|gettimeofday|absl::Now)\b|\b(s?rand|random)\s*\(\s*\)|(?<![\w.>])time\s*\(\s*(nullptr|NULL|0|&)'),
     re.compile(r'base/'), False),
    ('a sleep outside base/',
     re.compile(r'\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep|clock_nanosleep'
                r'|(?<![\w.>])sleep(?=\s*\())\b'),
     re.compile(r'base/'), True),
]
ROOMS = ('base', 'format', 'block', 'journal', 'alloc', 'writeback', 'fs', 'mkfs', 'fsck', 'ctl',
         'tests')
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])\'',
                      re.DOTALL)


def code_only(text):
    """The text with comments and literals blanked, lines kept."""
    return NOT_CODE.sub(lambda m: '\n' * m.group().count('\n') or ' ', text)


def violations(root):
    found = []
    for path in sorted(root.rglob('*')):
        file = path.relative_to(root).as_posix()
        room = file.split('/')[0]
        if room not in ROOMS or path.suffix not in ('.h', '.cc') or not path.is_file():
            continue
        lines = code_only(path.read_text(encoding='utf-8')).splitlines()
        for what, pattern, allowed, in_tests in RULES:
            if allowed.match(file) or (room == 'tests' and not in_tests):
                continue
            for number, line in enumerate(lines, 1):
                match = pattern.search(line)
                if match:
                    found.append(f'{file}:{number}: {what}: {match.group()}')
    return found


def selftest():
    bad = {
        'fs/a.cc': 'void F() { fdatasync(fd); }',
        'journal/b.cc': 'n = ::pread(fd, p, 1, 0);',
        'fs/fuse/c.cc': 'io_uring_queue_init(1, &r, 0);',
        'fs/d.cc': 'return errno;',
        'mkfs/e.cc': 'int e = errno;',
        'writeback/f.cc': 'std::this_thread::sleep_for(x);',
        'tests/fs/g.cc': 'absl::SleepFor(x);',
        'alloc/h.cc': 'auto t = std::chrono::steady_clock::now();',
        'fs/i.cc': 'auto t = time(nullptr);',
        'tests/fs/j.cc': 'sleep(1);',
    }
    good = {
        'block/ok.cc': 'pwrite(fd, p, 1, 0); if (errno == EINTR) io_uring_submit(&r);',
        'fs/ok.cc': '// errno and pread( are spoken of\nauto s = "sleep_for errno";\n'
                    'ops.fsync = Fsync; clock.Sleep(x); inode.set_time(t); Time time{};',
        'fs/fuse/ok.cc': 'return errno;',
        'mkfs/main.cc': 'int e = errno;',
        'base/ok.cc': 'std::this_thread::sleep_for(x); clock_gettime(c, &t);',
        'tests/fs/ok.cc': 'pread(fd, p, 1, 0); int e = errno;',
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in {**bad, **good}.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text + '\n', encoding='utf-8')
        found = {line.split(':')[0] for line in violations(root)}
    if found != set(bad):
        print('check_calls selftest: not found:', sorted(set(bad) - found),
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
