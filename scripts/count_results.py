#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the results of one `meson test` run: "PASSED FAILED SKIPPED", then the failed names.

Usage: count_results.py BUILD_DIR

Each case of a GoogleTest program counts as one (meson's JUnit log); any other test program counts
as one. A program that crashed, timed out or failed outside its cases counts as one failure beside
the cases it reported; one that reported nothing and yet "passed" is a failure too, for nothing
was tested. --selftest runs the counting over made-up logs.
"""
import json
import pathlib
import sys
import tempfile
import xml.etree.ElementTree as ElementTree


def read_cases(junit, known):
    """Test name -> list of (case name, 'passed'|'failed'|'skipped')."""
    cases = {}
    for suite in ElementTree.parse(junit).getroot().iter('testsuite'):
        # meson names a GoogleTest suite project.test.Suite, where test is as in testlog.json.
        parts = suite.get('name').split('.', 2)
        if len(parts) < 3 or parts[1] not in known:
            continue
        for case in suite.iter('testcase'):
            if case.find('failure') is not None or case.find('error') is not None:
                result = 'failed'
            elif case.find('skipped') is not None or case.get('status') == 'notrun':
                result = 'skipped'
            else:
                result = 'passed'
            cases.setdefault(parts[1], []).append((f'{parts[2]}.{case.get("name")}', result))
    return cases


def count(build):
    """(passed, failed, skipped, names of the failed)."""
    logs = pathlib.Path(build) / 'meson-logs'
    text = (logs / 'testlog.json').read_text(encoding='utf-8')
    tests = [json.loads(line) for line in text.splitlines() if line.strip()]
    names = {test['name']: test for test in tests}
    cases = read_cases(logs / 'testlog.junit.xml', names)
    totals = {'passed': 0, 'failed': 0, 'skipped': 0}
    failed = []
    for name, test in names.items():
        reported = cases.get(name, [])
        bad = [case for case, result in reported if result == 'failed']
        for _, result in reported:
            totals[result] += 1
        failed += [f'{name}: {case}' for case in bad]
        gtest = test.get('stdout', '').count('[==========]') > 0
        if test['result'] == 'SKIP':
            totals['skipped'] += 1
        elif test['result'] not in ('OK', 'EXPECTEDFAIL'):
            if not bad:
                totals['failed'] += 1
                failed.append(f'{name}: {test["result"]} (exit {test.get("returncode")})')
        elif gtest and not reported:
            totals['failed'] += 1
            failed.append(f'{name}: reported no test case (is its protocol gtest?)')
        elif not reported:
            totals['passed'] += 1
    return totals['passed'], totals['failed'], totals['skipped'], failed


def selftest():
    junit = '''<testsuites>
      <testsuite name="p.p:unit / alpha.One"><testcase name="A" status="run"/>
        <testcase name="B" status="run"><failure/></testcase>
        <testcase name="C" status="notrun"/>
        <testcase name="D" status="run"><skipped/></testcase></testsuite>
      <testsuite name="p.crashed.Two"><testcase name="A" status="run"/></testsuite>
      <testsuite name="p"><testcase name="shell"/></testsuite></testsuites>'''
    gtest = '[==========] Running'
    log = [{'name': 'p:unit / alpha', 'result': 'FAIL', 'returncode': 1, 'stdout': gtest},
           {'name': 'crashed', 'result': 'TIMEOUT', 'returncode': -9, 'stdout': gtest},
           {'name': 'empty', 'result': 'OK', 'returncode': 0, 'stdout': gtest},
           {'name': 'shell', 'result': 'OK', 'returncode': 0},
           {'name': 'absent', 'result': 'SKIP', 'returncode': 77}]
    with tempfile.TemporaryDirectory() as name:
        logs = pathlib.Path(name) / 'meson-logs'
        logs.mkdir()
        (logs / 'testlog.junit.xml').write_text(junit, encoding='utf-8')
        (logs / 'testlog.json').write_text('\n'.join(map(json.dumps, log)), encoding='utf-8')
        result = count(name)
    want = (3, 3, 3, ['p:unit / alpha: One.B', 'crashed: TIMEOUT (exit -9)',
                      'empty: reported no test case (is its protocol gtest?)'])
    if result != want:
        print('count_results selftest:', result, 'wanted', want)
        return 1
    return 0


def main():
    if sys.argv[1:] == ['--selftest']:
        return selftest()
    passed, failed, skipped, names = count(sys.argv[1])
    print(passed, failed, skipped)
    for name in names:
        print(name)
    return 0


if __name__ == '__main__':
    sys.exit(main())
