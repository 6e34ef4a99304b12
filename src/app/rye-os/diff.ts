const CONTEXT = 3;

/** One file of a patch; `before` undefined: it is new, `after` undefined: it is deleted. */
export interface Change {
  readonly path: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** A unified diff that `git apply` takes: one hunk for each file, from its first changed line to its last. */
export function unifiedDiff(changes: readonly Change[]): string {
  return changes.map(fileDiff).join('');
}

function fileDiff({ path, before, after }: Change): string {
  const old = linesOf(before);
  const now = linesOf(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old.at(-1 - tail) === now.at(-1 - tail)
  )
    tail += 1;
  const from = Math.max(0, head - CONTEXT);
  const kept = Math.max(0, tail - CONTEXT);
  const removed = old.slice(head, old.length - tail);
  const added = now.slice(head, now.length - tail);
  const lines = [
    ...old.slice(from, head).map((line) => ` ${line}`),
    ...removed.map((line) => `-${line}`),
    ...added.map((line) => `+${line}`),
    ...old.slice(old.length - tail, old.length - kept).map((line) => ` ${line}`),
  ];
  const mode =
    before === undefined
      ? 'new file mode 100644\n'
      : after === undefined
        ? 'deleted file mode 100644\n'
        : '';
  const range = (count: number): string => `${count === 0 ? 0 : from + 1},${count}`;
  return [
    `diff --git a/${path} b/${path}\n${mode}`,
    `--- ${before === undefined ? '/dev/null' : `a/${path}`}\n`,
    `+++ ${after === undefined ? '/dev/null' : `b/${path}`}\n`,
    `@@ -${range(old.length - kept - from)} +${range(now.length - kept - from)} @@\n`,
    ...lines.map((line) =>
      line.endsWith('\n') ? line : `${line}\n\\ No newline at end of file\n`,
    ),
  ].join('');
}

/** Lines with their ends, so that a missing last one is a difference. */
function linesOf(text: string | undefined): readonly string[] {
  return text === undefined || text === '' ? [] : (text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
}
