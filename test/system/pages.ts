import { readdirSync } from 'node:fs';
import path from 'node:path';
import { readConsolePage } from '../helpers/console-page.ts';
import { followPage, type PageWorld } from '../helpers/page-world.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** Readers have a key, so that a page that promises to need no model must not reach one. */
const KEY = 'export ANTHROPIC_API_KEY=k';
const INIT: PageWorld = { before: [KEY, 'rye init'], model: () => reply('Done.') };
const GIT = 'git init -q . && git config user.name me && git config user.email me@localhost';
const SUMMARY =
  'Version 0.1 adds signed directives, budgets and a session tree. Threads survive crashes. Every log is signed.';
const USAGE = { input_tokens: 850, output_tokens: 50 };
/** The world in which a reader of each page begins; of other pages, a project. */
const WORLDS: Readonly<Record<string, PageWorld>> = {
  'README.md': {
    replace: { 'ANTHROPIC_API_KEY=…': 'ANTHROPIC_API_KEY=k' },
    before: [
      `${GIT} && printf '# 0.1\\n\\n- Signed directives\\n- Budgets\\n' > CHANGELOG.md`,
      'echo delay > retry.txt && git add -A',
      `${KEY} && rye init`,
    ],
    model: [
      reply('retry: Double the delay up to 30 seconds'),
      reply('retry: Cap the backoff'),
      {
        ...calls(toolUse('rye_file_system_read', { path: 'CHANGELOG.md' }, 'a')),
        usage: USAGE,
      },
      { ...calls(toolUse('rye_directive_return', { summary: SUMMARY }, 'b')), usage: USAGE },
    ],
  },
  'docs/plugins.md': {},
  'docs/directives.md': {
    ...INIT,
    before: [
      ...(INIT.before ?? []),
      'mkdir -p old-project/.ai/directives',
      String.raw`printf '# Old\n\n\140\140\140xml\n<directive name="old" version="1.0.0"><metadata><description>Old.</description><category></category><author>you</author><model tier="fast" /></metadata></directive>\n\140\140\140\n\nSay hello.\n' > old-project/.ai/directives/old.md`,
    ],
    // a reader at the terminal answers the questions
    replace: { '--apply': '--apply --yes' },
  },
  'docs/threads.md': {
    before: [
      `rye init && ${GIT} && git add -A && git commit -qm Begin`,
      `${KEY} && mkdir src && touch src/a.ts src/b.ts`,
    ],
    model: ({ body }) =>
      reply(JSON.stringify(body).includes('How many tests') ? '{"n":2}' : 'A library.'),
  },
  'docs/trust.md': {
    before: [
      `rye init && ${GIT}`,
      'rye run hello -q',
      'openssl genpkey -algorithm ed25519 | openssl pkey -pubout > colleague.pem',
      'openssl genpkey -algorithm ed25519 | openssl pkey -pubout > bob.pem',
    ],
    replace: {
      '0123456789abcdef': "$(rye keys list | awk '/unknown/ {print $1}')",
      fedcba9876543210: "$(rye keys list | awk '/until rotated/ {print $1}' | tail -n 1)",
    },
  },
  'docs/providers.md': {
    // the model of this page is on loopback, to which no proxy leads
    replace: {
      'HTTPS_PROXY=http://127.0.0.1:9 ':
        'ANTHROPIC_BASE_URL=https://api.anthropic.com HTTPS_PROXY=http://127.0.0.1:9 ',
    },
    before: ['rye init'],
    model: () => ({
      status: 401,
      error: { type: 'authentication_error', message: 'invalid x-api-key' },
    }),
  },
  'docs/tutorial.md': {
    replace: { 'ANTHROPIC_API_KEY=…': 'ANTHROPIC_API_KEY=k' },
    model: ({ body }) =>
      JSON.stringify(body).includes('with `notes_word_count`')
        ? calls(toolUse('rye_directive_return', { words: 5 }, 'a'))
        : reply('Notes.'),
  },
};
/** The README and every page of the documentation that has a command. */
export const PAGES: readonly string[] = [
  'README.md',
  ...readdirSync(path.join(ROOT, 'docs')).map((name) => `docs/${name}`),
]
  // its commands need a database: fleet-docs.campaign.test.ts
  .filter((name) => name.endsWith('.md') && name !== 'docs/fleet.md')
  .filter((name) => readConsolePage(path.join(ROOT, name)).some(({ kind }) => kind === 'command'));

/** Returns each command of a page that failed or did not print what the page shows; empty if there is none. */
export async function surprisesOf(page: string): Promise<string> {
  const surprises = await followPage(path.join(ROOT, page), WORLDS[page] ?? INIT);
  return surprises.join('\n');
}
