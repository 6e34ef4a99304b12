import type { VerifyOutcome } from '../../../kernel/app/api/items.ts';
import { EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import { ITEM_TYPES, type SignableType, SPACES } from '../../../kernel/core/ids.ts';
import { compact } from '../../../kernel/core/json.ts';
import { SNIPPET_CLOSE, SNIPPET_OPEN } from '../../../kernel/core/search.ts';
import type { Io } from '../../ui/io.ts';
import {
  joined,
  linesOf,
  oneLine,
  partOf,
  replaced,
  type Shown,
  shown,
  trimmed,
  visible,
} from '../../ui/visible.ts';
import { JUNIT, reporting } from '../ci.ts';
import {
  argument,
  type Context,
  choice,
  defineCommand,
  flag,
  integer,
  optionalArgument,
  text,
} from '../command.ts';
import {
  ITEM_TYPE,
  OPTIONAL_SIGNABLE,
  OPTIONAL_SIGNED,
  readNamedFile,
  typeArgument,
  typeNamed,
} from '../input.ts';
import {
  colorsOf,
  count,
  displayPath,
  displayText,
  fitPath,
  formatTable,
  printDocument,
  printLine,
  printLines,
  printResult,
  relativePath,
  wrapped,
} from '../output.ts';
import { withRye } from '../session.ts';
import { casesOfFiles, casesOfProblems, formatProblem, printSigned, signable } from '../signed.ts';
import { printHint, reason, verificationExit, verifyThread } from './verify-thread.ts';

const SPACE = choice('SPACE', SPACES, 'Only this space');

export const init = defineCommand({
  options: { force: flag('Overwrite modified template files') },
  examples: ['rye init', 'rye run hello'],
  run: async (call) => {
    const { io, global, options } = call;
    const outcome = await withRye(call, (rye) => rye.init(options), { here: true });
    printResult(call, outcome, () => [
      ...outcome.created.map((file) => shown`created ${displayPath(file, io)}`),
      ...outcome.kept.map((file) => shown`kept    ${displayPath(file, io)}`),
      shown`${outcome.key_created ? 'new signing key' : 'signing key'} ${oneLine(outcome.key_id)}`,
    ]);
    if (!global.json && !global.quiet) io.stderr.write(shown`next: rye run hello\n`);
    return EXIT.ok;
  },
});

export const list = defineCommand({
  arguments: { type: ITEM_TYPE },
  options: { space: SPACE },
  examples: ['rye list directives', 'rye list tool --space project --json'],
  run: async (call) => {
    const { args, options, io } = call;
    const items = await withRye(call, (rye) => rye.items.list(args.type, compact(options)));
    return printResult(call, { items, total: items.length }, () => {
      const rows = items.map((item) => [
        item.id,
        item.space,
        item.version ?? '-',
        item.signature_version === 1 ? `${item.signature} (v1)` : item.signature,
        item.shadowed_by === null
          ? item.description.replaceAll(/\s+/g, ' ').trim()
          : `(shadowed by ${item.shadowed_by})`,
      ]);
      const headings = ['ID', 'SPACE', 'VERSION', 'SIGNATURE', 'DESCRIPTION'];
      return formatTable(headings, rows, io.stdout, ['VERSION', 'SPACE', 'DESCRIPTION']);
    });
  },
});

export const fetch = defineCommand({
  arguments: {
    type: ITEM_TYPE,
    id: argument('ID, such as rye/core/project_report: the path below the folder of the type', {
      item: {},
    }),
  },
  options: {
    raw: flag("Print only the file's bytes"),
    copyTo: choice('SPACE', ['project', 'user'], 'Copy the item to this space, to edit it'),
  },
  examples: [
    'rye fetch directive hello',
    'rye fetch directive rye/core/project_report --copy-to project',
  ],
  run: async (call) => {
    const { args, options, global, io } = call;
    const { type, id } = args;
    const { copyTo } = options;
    const item = await withRye(call, (rye) => rye.items.fetch(type, id, compact({ copyTo })));
    if (options.raw && !global.json) {
      const { path, content } = item;
      io.stdout.writeRaw(path === null ? content : await readNamedFile(path, `${type} ${id}`, io));
      return EXIT.ok;
    }
    return printResult(call, item, () => {
      if (item.copied_to !== undefined) return [displayPath(item.copied_to, io)];
      return [
        oneLine(`${item.type} ${item.id} (${item.space}, ${item.signature})`),
        ...(item.path === null ? [] : [displayPath(item.path, io)]),
        ...Object.entries(item.metadata).map(([name, value]) =>
          visible(`${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`),
        ),
        shown`\n${trimmed(visible(item.content))}`,
      ];
    });
  },
});

const CONTEXT_LINES = 3;
const SEARCHED = [...ITEM_TYPES, 'all'] as const;

export const search = defineCommand({
  details:
    'A query may use AND, OR, NOT, "phrases", prefix* and the fields title: tag: directive: status: model: after: before:. Knowledge includes the exports of past threads.',
  arguments: {
    first: {
      name: 'type|query',
      choices: SEARCHED,
      description: 'A query for all items; or an item type or all, and then the query',
      read: ([word = '']: readonly string[]) => word,
    },
    second: optionalArgument('Words and operators; quote it for the shell', { name: 'query' }),
  },
  options: {
    limit: integer('N', 'At most N results (default: 20)'),
    space: SPACE,
    since: text('T', 'Only newer items: an ISO date, or an age such as 7d or 12h'),
    context: flag('Print the lines around each match'),
  },
  examples: ['rye search budget', 'rye search knowledge \'status:error "rate limit"\' --since 7d'],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { type, query } = wanted(args);
    const { limit, space, since } = options;
    if (limit === 0) throw new RyeError('usage', '--limit must be at least 1');
    const contextLines = options.context ? CONTEXT_LINES : undefined;
    const { results, total, complete, notices } = await withRye(call, async (rye) => {
      return await rye.items.search(type, query, compact({ limit, space, since, contextLines }));
    });
    if (global.json) {
      const documents = results.map((hit) => ({ ...hit, snippet: marked(hit.snippet, asterisks) }));
      printDocument(io, { success: true, query, results: documents, total, complete, notices });
      return EXIT.ok;
    }
    const colors = colorsOf(io.stdout, call);
    for (const { context, ...hit } of results) {
      const where = hit.verified ? hit.space : `${hit.space}, ${hit.signature}`;
      const head = oneLine(`${hit.type} ${hit.id} (${where}) ${hit.title}`);
      printLines(io, wrapped(head, io.stdout));
      const { thread_id: thread = '', session_id: session = thread } = hit;
      if (thread !== session) {
        const chain = oneLine(`thread ${thread} of session ${session}`);
        printLines(io, wrapped(shown`  ${chain}`, io.stdout));
      }
      printLine(io, shown`  ${fitPath(displayPath(hit.path, io), io.stdout, 2)}`);
      if (session !== '') printLine(io, shown`  open: rye threads open ${oneLine(session)}`);
      // an excerpt of words, not of lines
      const words = hit.snippet.replaceAll(/\s+/g, ' ');
      const excerpt =
        context === undefined
          ? [colors.isColorSupported ? drawnAround(words) : oneLine(marked(words, asterisks))]
          : linesOf(visible(context));
      const lines = excerpt.flatMap((line) => wrapped(shown`  ${line}`, io.stdout));
      // colors have no width, so the marks become colors after the lines are wrapped
      printLine(io, marked(joined(lines, '\n'), colors.bold));
    }
    for (const notice of notices) io.stderr.write(shown`rye: warning: ${oneLine(notice)}\n`);
    if (!global.quiet) io.stderr.write(shown`${count(total, 'result')}\n`);
    return EXIT.ok;
  },
});

/** Reads `TYPE QUERY`, or a query alone. */
function wanted({
  first,
  second,
}: {
  readonly first: string;
  readonly second?: string | undefined;
}): {
  readonly type: (typeof SEARCHED)[number];
  readonly query: string;
} {
  if (second !== undefined) return { type: typeNamed(first, SEARCHED), query: second };
  const isType = SEARCHED.some((type) => type === first || `${type}s` === first);
  if (!isType) return { type: 'all', query: first };
  throw new RyeError('usage', 'missing argument <query>', {
    hint: `To search for the word itself: rye search all ${first}`,
  });
}

function asterisks(match: string): string {
  return `**${match}**`;
}

const MARKED = new RegExp(`${SNIPPET_OPEN}([^${SNIPPET_CLOSE}]*)${SNIPPET_CLOSE}`, 'g');

/** Replaces the private marks around matches with visible ones. */
function marked<T extends string>(snippet: T, mark: (match: T) => T): T {
  return replaced(snippet, MARKED, (match) => mark(partOf(match, 1, -1)));
}

/** Draws a snippet on one line, but not the marks in it. */
function drawnAround(snippet: string): Shown {
  const parts = snippet.split(SNIPPET_OPEN).map((part) => {
    return joined(part.split(SNIPPET_CLOSE).map(oneLine), SNIPPET_CLOSE);
  });
  return joined(parts, SNIPPET_OPEN);
}

export const validate = defineCommand({
  details: 'Without arguments it checks everything in the project space.',
  arguments: {
    type: OPTIONAL_SIGNABLE,
    pattern: optionalArgument('An ID, or a quoted glob', { name: 'id|glob', item: {} }),
  },
  options: { junit: JUNIT },
  examples: ['rye validate', "rye validate directive 'team/**'"],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { type, pattern } = args;
    if (type !== undefined && pattern === undefined) {
      throw new RyeError('usage', `rye validate ${type} needs an ID or a glob`, {
        hint: `To check all of them: rye validate ${type} '**'`,
      });
    }
    const suite = { suite: 'rye validate', junit: options.junit, name: pattern ?? 'project' };
    const { problems, checked } = await reporting(
      call,
      { ...suite, casesOf: casesOfProblems },
      () =>
        withRye(call, async (rye) =>
          rye.items.validate(
            type === undefined || pattern === undefined
              ? undefined
              : await signable(rye, type, pattern),
          ),
        ),
    );
    const errors = problems.filter(({ severity }) => severity === 'error').length;
    const success = errors === 0;
    const message = `${count(checked, 'item')} checked, ${count(errors, 'error')}, ${count(problems.length - errors, 'warning')}`;
    if (global.json) {
      const error = success ? undefined : { code: 'invalid_input', message };
      printDocument(io, compact({ success, error, problems, total: problems.length, checked }));
    } else {
      for (const problem of problems) printLine(io, formatProblem(problem, io));
      if (!global.quiet) io.stderr.write(shown`${visible(message)}\n`);
    }
    return success ? EXIT.ok : EXIT.usage;
  },
});

export const sign = defineCommand({
  details:
    'Without an ID, it lists the items of the project that lack a valid signature, and signs them after a yes; without a terminal, only with --yes. What another key signed is only listed. A missing signing key is created. A thread that ran with --unsigned-record is checked, shown and signed after a yes.',
  arguments: {
    type: OPTIONAL_SIGNED,
    pattern: optionalArgument('An ID or a quoted glob; for a thread, the thread ID', {
      name: 'id|glob',
      threadAfter: 'thread',
      item: {},
    }),
  },
  options: {
    dryRun: flag('Show what would be signed and write nothing'),
    watch: flag('Sign items of the project whenever they are saved, until Ctrl-C', { short: 'w' }),
    yes: flag('Without an ID, or for a thread: sign what is listed, and do not ask', {
      short: 'y',
    }),
  },
  examples: [
    'rye sign',
    'rye sign directive hello',
    'rye sign .ai/directives/hello.md',
    "rye sign tool 'team/*'",
    'rye sign config agent/hooks',
    'rye sign --watch',
    'rye sign thread report-7f3k',
  ],
  run: async (call) => {
    const { args, options } = call;
    const { type, pattern } = args;
    if (type === 'thread') return await signThread(call, pattern, options);
    if (options.watch) {
      const { watchAndSign } = await import('./author.ts');
      return await watchAndSign(call, compact({ type, pattern }));
    }
    if (type === undefined || pattern === undefined) {
      const { signAll } = await import('./sign-all.ts');
      return await signAll(call, { ...options, type: type === 'hook' ? 'config' : type });
    }
    const items = await withRye(call, async (rye) => {
      const target = await signable(rye, type, pattern);
      return await rye.items.sign(target.type, target.pattern, options);
    });
    return printSigned(call, items);
  },
});

async function signThread(
  context: Context,
  id: string | undefined,
  options: { readonly dryRun: boolean; readonly yes: boolean; readonly watch: boolean },
): Promise<ExitCode> {
  if (id === undefined || options.watch)
    throw new RyeError('usage', 'rye sign thread needs the ID of one thread, and no --watch');
  const { signRecord } = await import('./sign-record.ts');
  return await signRecord(context, id, options);
}

export const verify = defineCommand({
  details:
    'For a thread it checks thread.json, the plan, every checkpoint of the transcript, capabilities.md, artifacts and the knowledge export, and that no newer state is known. It needs no registry.',
  arguments: {
    type: typeArgument([...ITEM_TYPES, 'config', 'thread'], 'An item type, config or thread'),
    pattern: argument('An ID or a quoted glob; for a thread, the thread ID', {
      name: 'id|glob',
      threadAfter: 'thread',
      item: {},
    }),
  },
  options: {
    acceptHead: flag('Accept the state on disk as the newest, after you restored a thread'),
    junit: JUNIT,
  },
  examples: ["rye verify directive '**'", 'rye verify thread hello-7f3k'],
  run: async (call) => {
    const { type, pattern } = call.args;
    if (call.options.acceptHead && type !== 'thread') {
      throw new RyeError('usage', '--accept-head applies to a thread', {
        hint: 'Verify a thread: rye verify thread ID --accept-head',
      });
    }
    return type === 'thread'
      ? await verifyThread(call, pattern, call.options)
      : await verifyItems(call, { type, pattern }, call.options.junit);
  },
});

async function verifyItems(
  context: Context,
  { type, pattern }: { readonly type: SignableType; readonly pattern: string },
  junit: string | undefined,
): Promise<ExitCode> {
  const { io, global } = context;
  const suite = { suite: 'rye verify', junit, name: `${type} ${pattern}` };
  const items = await reporting(context, { ...suite, casesOf: casesOfFiles }, () =>
    withRye(context, (rye) => rye.items.verify(type, pattern)),
  );
  const error = items.find(({ ok }) => !ok)?.error;
  const success = items.every(({ ok }) => ok);
  if (global.json) printDocument(io, compact({ success, error, items, total: items.length }));
  else {
    for (const item of items) {
      const status = item.ok ? 'ok  ' : 'FAIL';
      const path = relativePath(item.path, io);
      // the message names the file too
      const why = displayText(reason(item.error), io).replace(`: ${path}: `, ': ');
      const thread = item.signed_by_thread;
      const by = thread === undefined ? '' : ` (signed by the model of thread ${thread})`;
      printLine(io, oneLine(`${status} ${path}${by}${why}`));
      printHint(item.error, io);
      printUpgrade(item, io);
    }
  }
  return verificationExit(success, error);
}

function printUpgrade({ type, id, signature_version: version }: VerifyOutcome, io: Io): void {
  if (version !== 1) return;
  io.stderr.write(
    shown`hint: The signature has an older format without the item's type and ID. Sign it again: rye sign ${type} ${oneLine(id)}\n`,
  );
}
