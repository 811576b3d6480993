#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/SPEC.md and format/*.h say the same: every structure, field, offset, size and constant.

For each structure in format/*.h (known by its OnDisk static_assert):
  - each field has a static_assert of its offset, and the structure one of its size;
  - fields are contiguous and add up to that size;
  - SPEC has a table under a heading "### Name (N bytes)" whose rows "| offset | size | `field` |"
    are the same, in the same order.
Constants in SPEC's tables (rows that begin "| `kName` | value |") have the value of the code.

Prints one line per disagreement and exits 1 if there is any. --selftest plants disagreements in
copies and expects each to be found.
"""
import pathlib
import re
import sys

WIDTHS = {'Le16': 2, 'Le32': 4, 'Le64': 8, 'LeS64': 8, 'uint8_t': 1, 'char': 1}

STRUCT = re.compile(r'^struct (\w+) \{\n(.*?)^\};', re.MULTILINE | re.DOTALL)
FIELD = re.compile(r'^\s*(\w+) (\w+)(?:\[(\w+)\])?;', re.MULTILINE)
OFFSET = re.compile(r'static_assert\(offsetof\((\w+), (\w+)\) == (\d+)\);')
SIZE = re.compile(r'sizeof\((\w+)\) == (\w+)\)')
ON_DISK = re.compile(r'static_assert\(OnDisk<(\w+)>')
CONSTANT = re.compile(r'^inline constexpr [\w:]+ (k\w+) =\s*([^;]+);', re.MULTILINE)
ENUM = re.compile(r'enum class \w+[^{]*\{(.*?)\};', re.DOTALL)
ENUMERATOR = re.compile(r'(k\w+) = (\d+)')

HEADING = re.compile(r'^### (\w+) \((\d+) bytes\)$')
FIELD_ROW = re.compile(r'^\| (\d+) \| (\d+) \| `(\w+)` \|')
CONSTANT_ROW = re.compile(r'^\| `(k\w+)` \| (\w+) \|')


def without_comments(text):
    return re.sub(r'//[^\n]*', '', text)


class Code:
    """Structures and constants of the headers."""

    def __init__(self, texts):
        self.problems = []
        text = '\n'.join(without_comments(t) for t in texts)
        self.sources = dict(CONSTANT.findall(text))
        for body in ENUM.findall(text):
            self.sources.update(ENUMERATOR.findall(body))
        on_disk = set(ON_DISK.findall(text))
        self.asserted = {}
        for struct, field, offset in OFFSET.findall(text):
            self.asserted.setdefault(struct, {})[field] = int(offset)
        self.sizes = {}
        declared = {}
        for name, body in STRUCT.findall(text):
            if name in on_disk:
                declared[name] = FIELD.findall(body)
        for name in on_disk - set(declared):
            self.problems.append(f'{name}: no declaration found')
        for name, size in SIZE.findall(text):
            if name in on_disk:
                self.sizes[name] = self.value(size)
        self.structs = {name: self.layout(name, fields) for name, fields in declared.items()}

    def value(self, expression):
        """The value of a constant expression of the headers; None if it is not understood."""
        text = expression.strip()
        text = re.sub(r'\b\w+\{(\w+)\}', r'\1', text)
        text = re.sub(r'sizeof\((\w+)\)', lambda m: str(self.width(m.group(1))), text)
        text = re.sub(r'\b(0x[0-9a-fA-F]+|\d+)u?\b', r'\1', text)
        text = re.sub(r'\bk\w+', lambda m: str(self.constant(m.group())), text)
        if not re.fullmatch(r'[0-9a-fA-Fx\s()+*/<|-]+', text):
            return None
        return eval(text.replace('/', '//'), {'__builtins__': {}})  # digits and operators only

    def constant(self, name):
        return self.value(self.sources[name]) if name in self.sources else None

    def width(self, type_name):
        return WIDTHS.get(type_name) or self.sizes.get(type_name)

    def layout(self, name, fields):
        """(field, offset, size) in order, from declarations; complains where asserts differ."""
        result, offset = [], 0
        asserted = self.asserted.get(name, {})
        for type_name, field, count in fields:
            width = self.width(type_name)
            number = 1 if not count else self.value(count)
            if width is None or number is None:
                self.problems.append(f'{name}.{field}: size not understood')
                return result
            if field not in asserted:
                self.problems.append(f'{name}.{field}: no static_assert of its offset')
            elif asserted[field] != offset:
                self.problems.append(f'{name}.{field}: asserted at {asserted[field]}, lies at {offset}')
            result.append((field, offset, width * number))
            offset += width * number
        if name not in self.sizes:
            self.problems.append(f'{name}: no static_assert of its size')
        elif self.sizes[name] != offset:
            self.problems.append(f'{name}: asserted {self.sizes[name]} bytes, has {offset}')
        return result


def read_spec(text):
    """Tables by structure, their sizes, constants, problems."""
    tables, sizes, constants, problems = {}, {}, {}, []
    current = None
    for line in text.splitlines():
        heading = HEADING.match(line)
        if heading:
            current = heading.group(1)
            if current in tables:
                problems.append(f'SPEC: {current} has two tables')
            tables[current], sizes[current] = [], int(heading.group(2))
        elif line.startswith('#'):
            current = None
        row = FIELD_ROW.match(line)
        if row and current is None:
            problems.append(f'SPEC: a field outside a structure: {line}')
        elif row:
            tables[current].append((row.group(3), int(row.group(1)), int(row.group(2))))
        row = CONSTANT_ROW.match(line)
        if row:
            constants[row.group(1)] = int(row.group(2), 0)
    return tables, sizes, constants, problems


def compare(headers, spec):
    code = Code(headers)
    tables, sizes, constants, problems = read_spec(spec)
    problems = code.problems + problems
    for name in sorted(set(code.structs) - set(tables)):
        problems.append(f'SPEC: no table of {name}')
    for name in sorted(set(tables) - set(code.structs)):
        problems.append(f'SPEC: {name} is no structure of format/')
    for name in sorted(set(tables) & set(code.structs)):
        if sizes[name] != code.sizes.get(name):
            problems.append(f'SPEC: {name} has {sizes[name]} bytes, the code {code.sizes.get(name)}')
        for theirs, ours in zip(tables[name], code.structs[name]):
            if theirs != ours:
                problems.append(f'SPEC: {name}: {theirs}, the code has {ours}')
        if len(tables[name]) != len(code.structs[name]):
            problems.append(f'SPEC: {name} has {len(tables[name])} fields, '
                            f'the code {len(code.structs[name])}')
    for name, value in constants.items():
        if code.constant(name) != value:
            problems.append(f'SPEC: {name} is {value}, in the code {code.constant(name)}')
    if not constants:
        problems.append('SPEC: no constants found')
    return problems


def selftest(headers, spec):
    """Each planted disagreement must be found in what is otherwise in order."""
    def in_spec(old, new):
        assert old in spec, old
        return headers, spec.replace(old, new, 1)

    def in_code(old, new):
        assert any(old in text for text in headers), old
        return [text.replace(old, new, 1) for text in headers], spec

    plants = {
        'offset in SPEC': in_spec('| 16 | 8 | `block` |', '| 17 | 8 | `block` |'),
        'size in SPEC': in_spec('| 16 | 8 | `block` |', '| 16 | 4 | `block` |'),
        'name in SPEC': in_spec('`free_inodes` |', '`free_nodes` |'),
        'row gone': in_spec('| 16 | 8 | `block` |', '| 16 - 8 - `block` |'),
        'struct size in SPEC': in_spec('### Inode (256 bytes)', '### Inode (255 bytes)'),
        'table gone': in_spec('### LogTag (24 bytes)', '### A tag'),
        'constant in SPEC': in_spec('| `kMaxDirLevels` | 6 |', '| `kMaxDirLevels` | 7 |'),
        'enumerator in SPEC': in_spec('| `kLogRevoke` | 17 |', '| `kLogRevoke` | 16 |'),
        'constant in code': in_code('kMaxExtentLength = 32768', 'kMaxExtentLength = 32767'),
        'offset in code': in_code('offsetof(Extent, physical) == 8', 'offsetof(Extent, physical) == 9'),
        'assert gone': in_code('static_assert(offsetof(Inode, mode) == 8);', ''),
        'field wider': in_code('Le16 depth;', 'Le32 depth;'),
        'new struct': in_code('struct ExtentIndex {', 'struct Added {\n  Le16 a;\n};\n'
                              'static_assert(OnDisk<Added> && sizeof(Added) == 2);\n'
                              'static_assert(offsetof(Added, a) == 0);\nstruct ExtentIndex {'),
    }
    failed = 0
    for name, (changed_headers, changed_spec) in plants.items():
        if not compare(changed_headers, changed_spec):
            print(f'check_spec selftest: not found: {name}')
            failed = 1
    return failed


def main():
    root = pathlib.Path(__file__).parents[1]
    headers = [path.read_text(encoding='utf-8')
               for path in [*sorted((root / 'format').glob('*.h')), root / 'base/units.h']]
    spec = (root / 'docs/SPEC.md').read_text(encoding='utf-8')
    if sys.argv[1:] == ['--selftest']:
        return selftest(headers, spec)
    problems = compare(headers, spec)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
