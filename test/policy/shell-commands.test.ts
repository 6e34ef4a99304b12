import { expect, it } from 'vitest';
import type { Condition } from '../../src/kernel/core/hook.ts';
import { callViews, matchedView } from '../../src/kernel/policy/call-views.ts';
import { regexFinds } from '../../src/kernel/policy/regex.ts';
import { regexMayFind } from '../../src/kernel/policy/regex-template.ts';

const judged = (condition: Condition, command: string): boolean =>
  matchedView(condition, {}, callViews('rye/bash', { command })) !== undefined;
const tests = (op: 'regex' | 'contains' | 'eq', value: string): Condition => ({
  path: 'input.command',
  op,
  value,
});
const PUSH = tests('regex', '^git push');

it.each([
  'git push',
  'git  push',
  'git\tpush origin',
  'git \\\npush',
  '"git" \'push\'',
  'g\\it pu""sh',
  "$'\\x67it' push",
  "$'\\147it' $'push'",
  '/usr/bin/git push',
  'git -c a=b push',
  'git --no-pager -C . push',
  'true; git push',
  'true && git push || true',
  'true | git push',
  'true & git push',
  'true\ngit push',
  'true # x\ngit push',
  '(cd x; git push)',
  '{ git push; }',
  '! git push',
  'if true; then git push; fi',
  'while :; do git push; done',
  'for x in a b; do git push; done',
  'echo $(git push)',
  'echo "$(git push)"',
  'echo `git push`',
  'echo "`git push`"',
  'echo ${x:-$(git push)}',
  'echo $((1 + $(git push)))',
  'cat <(git push)',
  'x=$(git push)',
  '> out git push',
  '{fd}> out git push',
  'git push > out 2>&1',
  'X=1 Y+=2 git push',
  'env X=1 git push',
  'env -u X -i git push',
  'sudo -u me git push',
  'sudo env X=1 nice -n 5 git push',
  'nohup git push',
  'timeout 5 git push',
  'command -p git push',
  'exec git push',
  'xargs git push < list',
  'echo push | xargs git',
  'find . -name x -exec git push {} +',
  "sh -c 'git push'",
  'bash -lc "true; git push"',
  "bash -o pipefail -c 'git push'",
  "sudo sh -c 'git push'",
  "eval 'git push'",
  'eval git push',
  "trap 'git push' EXIT",
  "su -c 'git push' me",
  "watch 'git push'",
  'bash <<EOF\ngit push\nEOF',
  "sh <<'EOF'\ngit push\nEOF\ntrue",
  'cat <<EOF\n$(git push)\nEOF',
  'cat <<-A <<B\nx\n\tA\ny\nB\ngit push',
  "bash <<< 'git push'",
  'g=push; git $g',
  'git {push,origin}',
  'git pus?',
  'echo "`echo \\"\'\\"; git push; echo \\"\'\\"`"',
])('a rule about git push applies to %j', (command) => {
  expect(judged(PUSH, command)).toBe(true);
});

it.each([
  '$g',
  '$g origin',
  'g=git; $g push',
  'git${IFS}push',
  '{git,push}',
  '/usr/bin/gi? push',
  'bash -c "$x"',
  'eval "$x"',
  'sudo $x',
  'sudo -u me $x',
  'base64 -d x | sh',
  'echo x | bash -s',
  'echo x | bash -o pipefail',
  'bash /dev/stdin',
  'source <(cat x)',
  'git() { true; }; git push',
  'case x in x) git push;; esac',
  'alias g="git push"\ng',
  'a=(git push); "${a[@]}"',
  'echo "unended',
  "echo 'unended",
  'echo $(unended',
  'cat <<EOF\nnever',
  'true )',
  `echo "\${x:-'}" ; git push; "'"`,
  'echo $((1<<2));\ngit push\n2',
  `${'('.repeat(5000)}git push`,
  `sh -c ${'"sh -c \''.repeat(50)}`,
  `env ${'A=1 '.repeat(100)}git push`,
])('a rule about commands applies to %j, whose program is not known', (command) => {
  expect(judged(PUSH, command)).toBe(true);
  // and a rule about all but what is allowed too
  expect(judged({ not: tests('regex', '^(git|echo|true|cat)( |$)') }, command)).toBe(true);
});

it.each([
  'git status',
  'git log --grep=push',
  'git commit -m "$message"',
  'echo $HOME',
  'ls *.ts | wc -l',
  'test -f "$x" && make "$y"',
  '[ -f x ] && [[ $x == y ]] && ls',
  'for f in *.md; do wc -l "$f"; done',
  'cat <<EOF > x\ngit push\nEOF',
  'rm -rf build/* # git push',
  'sh build.sh',
  'bash -c "npm test"',
  'find . -name "*.ts" | xargs wc -l',
  'if [ $# -gt 1 ]; then echo "${1:-x}"; fi',
  'echo $((1 + 2))',
])('a rule about git push is not about %j', (command) => {
  expect(judged(PUSH, command)).toBe(false);
});

it('a rule about all but a list applies to each command of a line', () => {
  const others: Condition = { not: tests('regex', '^(git (status|log|-C)|ls|wc)( |$)') };
  for (const command of ['git status', 'git log $x | wc -l', 'ls && git -C x log', 'ls *.ts']) {
    expect(judged(others, command), command).toBe(false);
  }
  for (const command of [
    'git status; rm x',
    'ls $(rm x)',
    'sudo ls',
    'git statusx',
    'g$x status',
  ]) {
    expect(judged(others, command), command).toBe(true);
  }
});

it('tests of other kinds read each command too', () => {
  expect(judged(tests('contains', 'git push'), 'true; git   push')).toBe(true);
  expect(judged(tests('eq', 'git push'), 'true; git push')).toBe(true);
  expect(judged({ path: 'input.command', op: 'in', value: ['git push'] }, 'git $x')).toBe(true);
  expect(judged(tests('eq', 'git push'), 'git pull')).toBe(false);
  expect(judged(tests('contains', 'a.c'), 'abc $x')).toBe(false);
});

it('a search in a text that is known finds what the library finds', () => {
  const patterns = ['^git push$', 'a|b+c', '[^x]y{2,3}', '(?i)PUSH', 'x*y', '(?:ab)+$', '^$', 'é.'];
  const texts = ['git push', 'bbc', 'ayyy', 'a push b', 'abab', 'éx', 'xxxy', 'git pushy'];
  for (const pattern of patterns) {
    for (const text of texts) {
      expect(regexMayFind(pattern, [text]), `${pattern} ${text}`).toBe(regexFinds(pattern, text));
    }
  }
});
