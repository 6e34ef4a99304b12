import type { KeySummary } from '../../app/api/items.ts';
import { compact } from '../../core/json.ts';
import {
  argument,
  defineCommand,
  defineGroup,
  flag,
  list as optionList,
  text,
} from '../command.ts';
import { confirm, readTextSource } from '../input.ts';
import { formatTable, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

const yes = flag('Do not ask; without a terminal, rye never asks', { short: 'y' });

const init = defineCommand({
  name: 'init',
  summary: 'Create the signing key',
  examples: ['rye keys init'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.keys.init());
    return printResult(call, key, () =>
      call.global.quiet ? [] : [`signing key ${key.key_id} in ${key.path}`],
    );
  },
});

const list = defineCommand({
  name: 'list',
  summary: 'List your own and trusted keys',
  examples: ['rye keys list --json'],
  run: async (call) => {
    const keys = await withRye(call, (rye) => rye.keys.list());
    return printResult(call, { keys, total: keys.length }, () => {
      const rows = keys.map((key) => [
        key.key_id,
        key.owner,
        key.source,
        stateOf(key),
        allowedBy(key),
      ]);
      return formatTable(['KEY', 'OWNER', 'SOURCE', 'STATE', 'MAY'], rows, call.io.stdout);
    });
  },
});

function stateOf({ revoked, revoked_at, trusted }: KeySummary): string {
  if (revoked) return revoked_at === undefined ? 'revoked' : `revoked ${revoked_at}`;
  return trusted ? 'trusted' : 'not trusted';
}

/** Names what a key may do, and where. */
function allowedBy({ purposes, only, types, projects }: KeySummary): string {
  if (purposes.length === 0) return '-';
  const limits = [
    types?.join(','),
    only === undefined ? undefined : `only ${only.join(',')}`,
    projects === undefined ? undefined : `in ${projects.join(', ')}`,
  ].filter((part) => part !== undefined);
  return [purposes.join(','), ...limits].join('; ');
}

const exportKey = defineCommand({
  name: 'export',
  summary: 'Print the public key as PEM',
  examples: ['rye keys export > alice.pem'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.keys.export());
    return printResult(call, key, () => [key.pem.trimEnd()]);
  },
});

const trust = defineCommand({
  name: 'trust',
  summary: 'Trust a public key from a PEM or TOML file',
  details:
    'Without limits the key may sign every item. Trusting a key again replaces its limits. A key never approves tool calls unless --for has approve.',
  arguments: { file: argument('The key file, or - for standard input') },
  options: {
    owner: text('NAME', "Name of the key's owner"),
    only: optionList('GLOB', "Only items with these IDs, such as 'reports/*' or 'team/**'"),
    types: text('LIST', 'Only these item types, such as directive,tool; thread means records'),
    for: text('LIST', 'What it may do: sign, approve or sign,approve (default: sign)'),
    yes,
  },
  examples: [
    'rye keys trust alice.pem --owner alice',
    "rye keys trust bob.pem --owner bob --only 'reports/*' --for sign,approve --yes",
    'rye keys trust - < alice.pem',
  ],
  run: async (call) => {
    const { owner, only, types, for: purposes } = call.options;
    const { file } = call.args;
    const content = await readTextSource(file, 'rye keys trust', call.io);
    const source = file === '-' ? 'standard input' : file;
    const wanted = compact({
      owner,
      ids: only.length === 0 ? undefined : only.flatMap(namesIn),
      types: types === undefined ? undefined : namesIn(types),
      purposes: purposes === undefined ? undefined : namesIn(purposes),
    });
    const key = await withRye(call, async (rye) => {
      const offer = await rye.keys.inspect(content, { ...wanted, source });
      const place = offer.projects === undefined ? 'everywhere' : offer.projects.join(', ');
      await confirm(
        call,
        [
          `key ${offer.key_id} of ${offer.owner}, trusted in: ${place}, for: ${offer.scope}`,
          'Everything signed with it will run with your permissions. Compare the fingerprint with the owner first.',
        ],
        'Trust it?',
      );
      return await rye.keys.trust(content, wanted);
    });
    return printResult(call, key, () => [
      oneLine(`trusted ${key.key_id} (${key.owner}) for ${allowedBy(key)}`),
    ]);
  },
});

/** Splits a list at its commas; an empty list stays empty, so that it is refused. */
function namesIn(names: string): readonly string[] {
  return names
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

const untrust = defineCommand({
  name: 'untrust',
  summary: 'Stop trusting a key',
  arguments: { keyid: argument('The fingerprint that `rye keys list` shows') },
  options: { yes },
  examples: ['rye keys untrust 0123456789abcdef --yes'],
  run: async (call) => {
    const { keyid } = call.args;
    const key = await withRye(call, async (rye) => {
      await confirm(
        call,
        ['rye will reject what it signed until you trust the key again or sign it yourself.'],
        `Stop trusting ${keyid}?`,
      );
      return await rye.keys.untrust(keyid);
    });
    return printResult(call, key, () => [`no longer trusted: ${key.key_id}`]);
  },
});

const revoke = defineCommand({
  name: 'revoke',
  summary: 'Revoke a key',
  arguments: { keyid: argument('The fingerprint that `rye keys list` shows') },
  options: { reason: text('TEXT', 'Recorded with the revocation'), yes },
  examples: ['rye keys revoke 0123456789abcdef --reason "laptop lost"'],
  run: async (call) => {
    const { keyid } = call.args;
    const { reason } = call.options;
    const key = await withRye(call, async (rye) => {
      await confirm(
        call,
        ['rye will reject everything signed with it. You cannot undo this.'],
        `Revoke ${keyid}?`,
      );
      return await rye.keys.revoke(keyid, compact({ reason }));
    });
    return printResult(call, key, () => [`revoked ${key.key_id}`]);
  },
});

const rotate = defineCommand({
  name: 'rotate',
  summary: 'Create a new signing key, endorsed by the old one',
  options: { yes },
  examples: ['rye keys rotate'],
  run: async (call) => {
    const rotation = await withRye(call, async (rye) => {
      const { key_id } = await rye.keys.export();
      await confirm(
        call,
        [`A new key will sign from now on. The key ${key_id} stays trusted until you revoke it.`],
        'Create a new signing key?',
      );
      return await rye.keys.rotate();
    });
    return printResult(call, rotation, () => [
      `signing key ${rotation.key_id} replaces ${rotation.old_key_id}`,
    ]);
  },
});

export const keys = defineGroup({
  examples: ['rye keys list'],
  commands: [init, list, exportKey, trust, untrust, revoke, rotate],
});
